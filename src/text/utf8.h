// UTF-8 that may be broken, made whole.
#pragma once

#include <string>
#include <string_view>

namespace ramify::text {

bool is_valid_utf8(std::string_view text);

// Each maximal part of a broken sequence becomes one U+FFFD, as browsers and Python do it.
std::string valid_utf8(std::string_view text);

}  // namespace ramify::text
