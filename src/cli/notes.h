// What the program says beside its results: progress, notes and complaints, on standard error. Where they cannot be
// written, as in a log on a full disk, they are lost and the work goes on; fmt::print would throw.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace ramify::cli {

template <class... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace ramify::cli
