// `ramify eval` and `ramify predict`: the options. The work needs torch and is in training_commands.cc.
#include <memory>
#include <string>

#include "commands.h"
#include "compute_options.h"
#include "exit_status.h"
#include "torch_library.h"
#include "training_commands.h"

namespace ramify::cli {
namespace {

std::shared_ptr<UseCommand> add_use_options(CLI::App& app, const char* data_help) {
  const auto command = std::make_shared<UseCommand>();
  app.add_option("DIR", command->folder, "folder of a trained run")->required();
  app.add_option("DATA", command->data, data_help)->required();
  app.add_option("--images", command->images, "a .tar that image paths are looked up in [as in training]");
  app.add_option("--on-bad", command->on_bad, "what to do with a record that cannot be used: fail or skip")
      ->check(CLI::IsMember({"fail", "skip"}))
      ->capture_default_str();
  add_compute_options(app, command->compute);
  return command;
}

}  // namespace

void add_eval(CLI::App& app) {
  auto* eval = app.add_subcommand("eval", "Score a trained model on records whose target is known");
  const auto command = add_use_options(*eval, "records: .jsonl or .jsonl.zst files, - for standard input");
  eval->add_flag("--json", command->json, "print all scores as JSON, with the confusion matrix");
  eval->footer("Examples:\n  ramify eval runs/reviews test.jsonl\n  ramify eval runs/reviews test.jsonl.zst --json");
  eval->callback([command] { throw_exit_status(torch_function<RunUse>(kEvalFunction)(*command)); });
}

void add_predict(CLI::App& app) {
  auto* predict = app.add_subcommand("predict", "Predict the target of records, one line of JSON each");
  const auto command = add_use_options(*predict, "records: .jsonl or .jsonl.zst files, - for standard input");
  predict->add_option("--out", command->out, "file for the predictions [standard output]");
  predict->footer(
      "Examples:\n"
      "  ramify predict runs/reviews new.jsonl > predictions.jsonl\n"
      "  echo '{\"text\": \"What a film!\"}' | ramify predict runs/reviews -");
  predict->callback([command] { throw_exit_status(torch_function<RunUse>(kPredictFunction)(*command)); });
}

}  // namespace ramify::cli
