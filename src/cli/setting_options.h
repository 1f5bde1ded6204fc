// Options that are one value of a run's settings each: settings[part][key], left out where nothing is said.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace ramify::cli {

// `command` has a member `settings`, a JSON object.
template <class Value, class Command>
CLI::Option* add_setting(CLI::App& app, const std::shared_ptr<Command>& command, const std::string& flag,
                         const char* part, const char* key, const std::string& help) {
  auto* option = app.add_option_function<Value>(
      flag, [command, part, key](const Value& value) { command->settings[part][key] = value; }, help);
  // of a value that is said twice the last one counts, so that scripts can be overruled
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    if (flag.starts_with("--")) option->allow_extra_args(false)->delimiter(',');  // DATA may follow it
  } else {
    option->take_last();
  }
  return option;
}

// The options that every kind of training has.
template <class Command>
void add_common_training_options(CLI::App& app, const std::shared_ptr<Command>& command) {
  constexpr const char* kPart = "training";
  add_setting<int64_t>(app, command, "--epochs", kPart, "epochs", "times through the data [as the config says: 10]");
  add_setting<double>(app, command, "--rate", kPart, "rate",
                      "learning rate at its height [0.001; of a published model 3e-5]");
  add_setting<double>(app, command, "--warmup", kPart, "warmup", "share of the steps in which the rate rises [0.05]");
  add_setting<double>(app, command, "--weight-decay", kPart, "weight_decay", "of AdamW [0.01]");
  add_setting<double>(app, command, "--clip", kPart, "clip", "largest norm of the gradients of a step [1]");
  add_setting<int64_t>(app, command, "--patience", kPart, "patience",
                       "stop after so many epochs without a better validation; 0: never [0]");
  add_setting<int64_t>(app, command, "--seed", kPart, "seed", "of parameters, order and dropout [0]");
  add_setting<std::string>(app, command, "--dtype", kPart, "dtype",
                           "float32, bfloat16, or float64 for comparisons [float32]");
  add_setting<int64_t>(app, command, "--log-every", kPart, "log_every",
                       "steps between two lines of metrics [50; of texts 20]");
  add_setting<int64_t>(app, command, "--checkpoint-every", kPart, "checkpoint_every",
                       "steps between two checkpoints [500]");
}

}  // namespace ramify::cli
