// What `ramify train-lm` asks of the half of the program that has torch (torch_library.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "training_commands.h"

namespace ramify::cli {

struct TrainLanguageCommand {
  std::string config;                                  // a file; "": none
  nlohmann::json settings = nlohmann::json::object();  // what was said: parts of train::LanguageSettings
  std::string out;
  bool resume = false;
  bool deterministic = false;
  bool json = false;
  ComputeOptions compute;
  std::vector<std::string> command_line;
};

using RunTrainLanguage = int(const TrainLanguageCommand&);
inline constexpr const char* kTrainLanguageFunction = "ramify_run_train_language";

}  // namespace ramify::cli
