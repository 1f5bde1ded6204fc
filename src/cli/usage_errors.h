// What is said of commands and options that there are none of, with the name that may have been meant.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace ramify::cli {

// "there is no command trian; did you mean train?", or "" if the commands at the front of `arguments` are known.
std::string unknown_command(const CLI::App& app, std::span<const char* const> arguments);

// After parsing has failed: "there is no option --tagret; did you mean --target?", or "" if no option is left over.
std::string unknown_option(const CLI::App& app);

}  // namespace ramify::cli
