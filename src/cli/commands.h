// The subcommands of `ramify`. Each adds itself to the parser; what it returns from its callback is its work.
#pragma once

#include <CLI/CLI.hpp>

namespace ramify::cli {

void add_flops(CLI::App& app);

}  // namespace ramify::cli
