// The options of every command that computes with a model.
#pragma once

#include <CLI/CLI.hpp>

#include "training_commands.h"

namespace ramify::cli {

void add_compute_options(CLI::App& app, ComputeOptions& compute);

}  // namespace ramify::cli
