// The shell of every page: one file that fetches nothing, runs no script but its own, and follows the reader's light or
// dark setting.
#pragma once

#include <string>
#include <string_view>

namespace ramify::report {

// title: plain text, escaped here. body: HTML.
std::string page_html(std::string_view title, std::string_view body);

}  // namespace ramify::report
