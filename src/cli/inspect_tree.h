// One record drawn as its tree.
#pragma once

#include <string>

#include "report/tree.h"
#include "signal/signal.h"

namespace ramify::cli {

// Lines for a terminal, at most `width` columns wide. Long families, deep levels and long texts are cut, and what is
// left out is counted. The signal has labels.
std::string draw_tree(const signal::Signal& signal, size_t width);

// The same for an HTML page, whole.
report::TreeNode tree_for_page(const signal::Signal& signal);

}  // namespace ramify::cli
