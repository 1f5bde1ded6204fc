// The options of every command that computes with a published model.
#pragma once

#include <CLI/CLI.hpp>

#include "model_commands.h"

namespace ramify::cli {

void add_model_options(CLI::App& app, ModelOptions& model);  // MODEL, --dtype, --max-tokens, --device, --threads
// Of commands for decoders: without a limit of tokens, and with causal attention.
void add_decoder_options(CLI::App& app, ModelOptions& model);
void add_causal_options(CLI::App& app, ModelOptions& model);
void add_swap_options(CLI::App& app, ModelOptions& model);  // --hierarchy, --layers, --tie, --no-self

}  // namespace ramify::cli
