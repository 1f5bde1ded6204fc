// Checks of numbers on the command line whose messages have no more digits than they need.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace ramify::cli {

inline CLI::Validator from_one() {
  return CLI::Validator(
      [](const std::string& written) {
        int64_t number = 0;
        const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), number);
        const bool is_right = error == std::errc() && end == written.data() + written.size() && number >= 1;
        return is_right ? std::string() : written + " is given; expected a whole number from 1";
      },
      "FROM 1");
}

}  // namespace ramify::cli
