// The subcommands of `ramify`. Each adds itself to the parser, with its work as the callback.
#pragma once

#include <CLI/CLI.hpp>

namespace ramify::cli {

void add_bench(CLI::App& app);
void add_flops(CLI::App& app);

}  // namespace ramify::cli
