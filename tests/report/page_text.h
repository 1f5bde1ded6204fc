// What tests of pages look for in them, and the recorded runs that the pages are of.
#pragma once

#include <cstddef>
#include <string>

namespace ramify::report {

inline const std::string kRuns = RAMIFY_TEST_DATA "/runs/";

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++number;
  return number;
}

}  // namespace ramify::report
