// Tokens as running text, each shaded by its mass. The marks by which tokenizers note word parts ("##ing", "▁the")
// become what they mean: no space, or one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "report/shade.h"
#include "report/tree.h"

namespace ramify::report {

// At most max_tokens of them; the rest is counted at the end.
std::string token_flow_html(std::span<const TreeNode> tokens, const Shade& shade, size_t max_tokens);

// The beginning of the same text without marks, for previews: plain text, not HTML.
std::string plain_text(std::span<const TreeNode* const> tokens);

}  // namespace ramify::report
