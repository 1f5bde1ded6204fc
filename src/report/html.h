// Text and numbers as they stand in a page. What comes from data goes through escape, wherever it is put.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ramify::report {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();  // a number that is not there

// For the content of elements and for attributes in double quotes. Bytes that are not UTF-8, control characters and
// the characters that turn the direction of what follows become U+FFFD. Longer texts end in an ellipsis.
std::string escape(std::string_view text, size_t max_characters = 2000);

// The same inside <bdi>, so that text of either direction does not move what stands around it.
std::string isolated(std::string_view text, size_t max_characters = 2000);

// The first characters, cut between two of them; broken UTF-8 counts a byte as one.
std::string_view first_characters(std::string_view text, size_t count);

// For reading; a value that is not finite is a dash.
std::string with_commas(int64_t count);  // 1,204,332
std::string with_unit(double value);     // 1.2 M, 48.3 k
std::string decimal(double value);       // 0.4321, 12.345, 1.2e-05
std::string percent(double share);       // 87.9%
std::string bytes_text(double bytes);    // 1.4 GiB
std::string duration(double seconds);    // 4.2 s, 3 min 20 s, 2 h 05 min

}  // namespace ramify::report
