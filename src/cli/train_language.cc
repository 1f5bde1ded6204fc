// `ramify train-lm`: the options. The run itself needs torch and is in language_commands.cc.
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "compute_options.h"
#include "exit_status.h"
#include "language_commands.h"
#include "setting_options.h"
#include "torch_library.h"

namespace ramify::cli {
namespace {

using LanguageCommand = std::shared_ptr<TrainLanguageCommand>;

void add_text_options(CLI::App& app, const LanguageCommand& command) {
  constexpr const char* kPart = "data";
  using Names = std::vector<std::string>;
  add_setting<Names>(app, command, "TEXT", kPart, "train",
                     "texts to learn from, one behind the other: files, plain or compressed (.txt, .txt.zst), records "
                     "(.jsonl, .jsonl.zst), - for standard input");
  add_setting<std::string>(app, command, "--tokenizer", kPart, "tokenizer",
                           "folder or file of a published tokenizer; it becomes part of the model");
  auto* valid = add_setting<Names>(app, command, "--valid", kPart, "valid", "text to validate with after each epoch");
  add_setting<double>(
      app, command, "--valid-fraction", kPart, "valid_fraction",
      "without --valid: this part of TEXT, from its end; 0: no validation, the last epoch is taken [0.1]")
      ->check(CLI::Range(0.0, 0.99))
      ->excludes(valid);
  add_setting<Names>(app, command, "--test", kPart, "test", "text to score the best model with at the end");
  add_setting<std::string>(app, command, "--field", kPart, "field", "of records: which one is the text [text]");
  add_setting<int64_t>(app, command, "--limit", kPart, "limit", "learn from so many tokens of TEXT only; 0: all [0]");
  add_setting<int64_t>(app, command, "--context", kPart, "context",
                       "tokens of a sequence, the most that the model looks back [512]");
}

void add_attention_options(CLI::App& app, const LanguageCommand& command) {
  constexpr const char* kPart = "attention";
  add_setting<std::string>(app, command, "--attention", kPart, "kind", "exact or hierarchical [hierarchical]")
      ->check(CLI::IsMember({"exact", "hierarchical"}));
  add_setting<std::string>(app, command, "--hierarchy", kPart, "hierarchy",
                           "windows of hierarchical attention, from the bottom: 16* or 2,4,8,16 [16*]");
  add_setting<std::string>(app, command, "--tie", kPart, "tie",
                           "of it: none (each token looks for itself) or block (alike within a family) [none]")
      ->check(CLI::IsMember({"block", "none"}));
  add_setting<int64_t>(app, command, "--window", kPart, "window",
                       "of it, with --tie none: so many tokens back are seen one by one [0]");
}

void add_size_options(CLI::App& app, const LanguageCommand& command) {
  constexpr const char* kPart = "model";
  app.add_option("--config", command->config, "file with any of \"model\", \"attention\" and \"training\"");
  add_setting<int64_t>(app, command, "--layers", kPart, "layers", "of the decoder [4]");
  add_setting<int64_t>(app, command, "--width", kPart, "width", "values of a token between layers [256]");
  add_setting<int64_t>(app, command, "--heads", kPart, "heads", "of attention [4]");
  add_setting<int64_t>(app, command, "--key-heads", kPart, "key_heads",
                       "heads of keys and values, shared by groups of heads; 0: one a head [0]");
  add_setting<int64_t>(app, command, "--inner-width", kPart, "inner_width",
                       "of the part between attentions; 0: 8/3 of the width [0]");
}

}  // namespace

void add_train_language(CLI::App& app, const std::vector<std::string>& command_line, const Launch& launch) {
  auto* train = app.add_subcommand("train-lm", "Train a language model (a small Llama) on running text");
  const auto command = std::make_shared<TrainLanguageCommand>();
  add_text_options(*train, command);
  train->add_option("--out", command->out, "folder for the model and everything about the run")->required();
  add_attention_options(*train, command);
  add_size_options(*train, command);
  add_common_training_options(*train, command);
  add_setting<int64_t>(*train, command, "--batch-tokens", "training", "batch_leaves",
                       "tokens of a batch: as many whole sequences as fit, one at least [8192]");
  train->add_flag("--resume", command->resume, "go on with the run in --out, bit for bit");
  train->add_flag("--deterministic", command->deterministic, "the same bits each time on CUDA, too");
  train->add_flag("--json", command->json, "print the result as JSON");
  add_compute_options(*train, command->compute);
  train->footer(
      "Examples:\n"
      "  ramify train-lm book.txt --tokenizer models/stories15m --out runs/book\n"
      "  ramify train-lm wiki.txt.zst --test test.txt.zst --tokenizer models/gpt2 --context 4096 --out runs/wiki\n"
      "  ramify train-lm wiki.txt.zst --tokenizer models/gpt2 --attention exact --out runs/exact\n"
      "  ramify train-lm --resume --out runs/book\n"
      "  torchrun --nproc-per-node=2 -m ramify train-lm book.txt --tokenizer models/gpt2 --out runs/two   # 2 "
      "processes");
  command->command_line = command_line;
  command->compute.launch = launch;
  train->callback([command] { throw_exit_status(torch_function<RunTrainLanguage>(kTrainLanguageFunction)(*command)); });
}

}  // namespace ramify::cli
