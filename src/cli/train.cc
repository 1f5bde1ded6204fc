// `ramify train`: the options. The run itself needs torch and is in training_commands.cc.
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "compute_options.h"
#include "exit_status.h"
#include "schema_flags.h"
#include "setting_options.h"
#include "torch_library.h"
#include "training_commands.h"

namespace ramify::cli {
namespace {

using Command = std::shared_ptr<TrainCommand>;

void add_data_options(CLI::App& app, const Command& command) {
  constexpr const char* kPart = "data";
  using Names = std::vector<std::string>;
  add_setting<Names>(app, command, "DATA", kPart, "train",
                     "records to learn from: .jsonl or .jsonl.zst files, - for standard input");
  auto* valid =
      add_setting<Names>(app, command, "--valid", kPart, "valid", "records to validate with after each epoch");
  add_setting<double>(
      app, command, "--valid-fraction", kPart, "valid_fraction",
      "without --valid: this part of DATA, drawn at random; 0: no validation, the last epoch is taken [0.1]")
      ->check(CLI::Range(0.0, 0.99))
      ->excludes(valid);
  add_setting<Names>(app, command, "--test", kPart, "test", "records to score the best model with at the end");
  add_schema_flags(app, command->schema);
  add_setting<std::string>(app, command, "--word-vectors", kPart, "word_vectors",
                           "vectors to begin with, in the ordinary text format; they stay as they are");
  app.add_flag_callback(
      "--train-vectors", [command] { command->settings["data"]["train_vectors"] = true; },
      "let the word vectors learn, too");
  add_setting<std::string>(app, command, "--leaf-encoder", kPart, "leaf_encoder",
                           "folder of a published encoder (BERT, RoBERTa): its vectors are the leaves of texts");
  add_setting<std::string>(app, command, "--leaf-level", kPart, "leaf_level",
                           "what such a leaf is: a sentence or a paragraph (the mean of its tokens), a token in its "
                           "text, or table: a token by the encoder's word table [sentence]")
      ->check(CLI::IsMember({"table", "token", "sentence", "paragraph"}));
  app.add_option("--leaf-cache", command->leaf_cache,
                 "file that keeps the encoder's vectors, so that the next run need not compute them")
      ->take_last();
}

void add_model_options(CLI::App& app, const Command& command) {
  app.add_option("--config", command->config,
                 "default, paper-language, paper-multimodal, or a file with \"model\" and \"training\" [default]");
  app.add_option_function<std::string>(
         "--attention", [command](const std::string& name) { command->settings["attention"] = name; },
         "hierarchical, flat (softmax over all leaves) or none (no mixing); with --architecture exact or hierarchical "
         "[hierarchical]")
      ->check(CLI::IsMember({"hierarchical", "flat", "none", "exact"}));
  app.add_option("--set", command->set, "any value of the config, such as model.layers.0.heads=3 or training.clip=5")
      ->allow_extra_args(false);
}

// A transformer for texts instead of the encoder for nested data.
void add_architecture_options(CLI::App& app, const Command& command) {
  constexpr const char* kPart = "architecture";
  auto* name = add_setting<std::string>(app, command, "--architecture", kPart, "name",
                                        "a transformer for one text or a pair of texts: bert or roberta (random), or "
                                        "the folder of a published one to begin with");
  add_setting<std::string>(app, command, "--hierarchy", kPart, "hierarchy",
                           "windows of its hierarchical attention, from the bottom [16,8,4,2]")
      ->needs(name);
  add_setting<std::string>(app, command, "--layers", kPart, "swapped",
                           "its layers that have it, counted from 0: 7,9,11 or 4-11 or all [all]")
      ->needs(name);
  add_setting<std::string>(app, command, "--tie", kPart, "tie", "of it: block or none [block]")
      ->check(CLI::IsMember({"block", "none"}))
      ->needs(name);
}

void add_training_options(CLI::App& app, const Command& command) {
  constexpr const char* kPart = "training";
  add_common_training_options(app, command);
  add_setting<int64_t>(app, command, "--batch-records", kPart, "batch_records", "most records in a batch [32]");
  add_setting<int64_t>(app, command, "--batch-leaves", kPart, "batch_leaves", "most leaves in a batch [16384]");
}

}  // namespace

void add_compute_options(CLI::App& app, ComputeOptions& compute) {
  app.add_option("--device", compute.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--threads", compute.threads, "threads that compute; 0: one a core")->check(CLI::Range(0, 1024));
  app.add_option("--workers", compute.workers, "threads that read records; 0: one a core")->check(CLI::Range(0, 1024));
}

void add_train(CLI::App& app, const std::vector<std::string>& command_line, const Launch& launch) {
  auto* train = app.add_subcommand("train", "Train a model on a file of nested records");
  const auto command = std::make_shared<TrainCommand>();
  add_data_options(*train, command);
  train->add_option("--out", command->out, "folder for the model and everything about the run")->required();
  add_model_options(*train, command);
  add_architecture_options(*train, command);
  add_training_options(*train, command);
  train->add_flag("--resume", command->resume, "go on with the run in --out, bit for bit");
  train->add_flag("--deterministic", command->deterministic, "the same bits each time on CUDA, too");
  train->add_option("--explain", command->explanations, "records to store with the attention on their trees")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  train->add_flag("--json", command->json, "print the result as JSON");
  add_compute_options(*train, command->compute);
  train->footer(
      "Examples:\n"
      "  ramify train reviews.jsonl --target label --out runs/reviews\n"
      "  ramify train train.jsonl.zst --valid dev.jsonl.zst --test test.jsonl.zst --target label --out runs/a\n"
      "  ramify train reviews.jsonl --target label --attention flat --out runs/flat\n"
      "  ramify train --resume --out runs/reviews\n"
      "  torchrun --nproc-per-node=2 -m ramify train reviews.jsonl --target label --out runs/two   # 2 processes");
  command->command_line = command_line;
  command->compute.launch = launch;
  train->callback([command] {
    const signal::SchemaSettings usual;
    signal::SchemaSettings::visit(
        command->schema, [&](const char* key, const auto& member) { command->settings["data"][key] = member; });
    // what was not said is left to the run, where one goes on
    signal::SchemaSettings::visit(usual, [&](const char* key, const auto& member) {
      if (command->settings["data"][key] == nlohmann::json(member)) command->settings["data"].erase(key);
    });
    throw_exit_status(torch_function<RunTrain>(kTrainFunction)(*command));
  });
}

}  // namespace ramify::cli
