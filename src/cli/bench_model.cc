// `ramify bench model`: the options. Measuring needs torch and is in model_bench.cc.
#include <memory>

#include "commands.h"
#include "exit_status.h"
#include "model_options.h"
#include "torch_library.h"

namespace ramify::cli {

void add_bench_model(CLI::App& bench) {
  auto* model = bench.add_subcommand("model", "Time a published model with exact and with swapped attention");
  const auto command = std::make_shared<ModelBenchCommand>();
  command->model.hierarchy = "16*";
  add_model_options(*model, command->model);
  model->add_option("--tokens", command->tokens, "tokens of a text; a list gives a row each")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->default_str("128,512,2048,8192");
  model->add_option("--batch", command->batch, "texts at a time")->check(CLI::Range(1, 4096))->capture_default_str();
  add_swap_options(*model, command->model);
  model->add_flag("--json", command->json, "print JSON");
  model->footer(
      "Examples:\n"
      "  ramify bench model models/gte-small\n"
      "  ramify bench model models/gte-small --tokens 512,8192 --hierarchy 64,8* --tie none --threads 2\n"
      "Where a text has more tokens than the model has positions, these begin anew: for the time only.");
  model->callback([command] { throw_exit_status(torch_function<RunModelBench>(kModelBenchFunction)(*command)); });
}

}  // namespace ramify::cli
