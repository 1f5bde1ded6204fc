// The subcommands of `ramify`. Each adds itself to the parser, with its work as the callback.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "training_commands.h"

namespace ramify::cli {

void add_bench(CLI::App& app);
void add_bench_cache(CLI::App& bench);
void add_bench_model(CLI::App& bench);
void add_compare(CLI::App& app);
void add_encode(CLI::App& app);
void add_generate(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_eval(CLI::App& app);
void add_flops(CLI::App& app);
void add_inspect(CLI::App& app);
void add_predict(CLI::App& app);
void add_report(CLI::App& app);
void add_train(CLI::App& app, const std::vector<std::string>& command_line, const Launch& launch);
void add_train_language(CLI::App& app, const std::vector<std::string>& command_line, const Launch& launch);

}  // namespace ramify::cli
