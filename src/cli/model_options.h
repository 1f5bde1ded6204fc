// The options of every command that computes with a published model.
#pragma once

#include <CLI/CLI.hpp>

#include "model_commands.h"

namespace ramify::cli {

void add_model_options(CLI::App& app, ModelOptions& model);  // MODEL, --dtype, --max-tokens, --device, --threads
void add_swap_options(CLI::App& app, ModelOptions& model);   // --hierarchy, --layers, --tie, --no-self

}  // namespace ramify::cli
