// What `ramify train`, `eval` and `predict` ask of the half of the program that has torch (torch_library.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "signal/schema_settings.h"

namespace ramify::cli {

// One of several processes that do a command together.
struct Launch {
  std::string group;                   // its name in torch.distributed; "": a process of its own
  int rank = 0;                        // in the group
  int local_rank = 0, local_size = 1;  // among those of this machine
};

struct ComputeOptions {
  std::string device = "cpu";
  int threads = 0;  // of torch; 0: as it likes
  int workers = 0;  // that read records; 0: one a core
  Launch launch;    // of training
};

struct TrainCommand {
  std::string config;  // none: the default one, or as the run has it
  signal::SchemaSettings schema;
  nlohmann::json settings = nlohmann::json::object();  // what was said: parts of train::Settings
  std::vector<std::string> set;                        // KEY=VALUE, over the config
  std::string out;
  std::string leaf_cache;
  bool resume = false;
  bool deterministic = false;
  bool json = false;
  int64_t explanations = 6;
  ComputeOptions compute;
  std::vector<std::string> command_line;
};

struct UseCommand {  // of a trained model
  std::string folder;
  std::vector<std::string> data;
  std::string images;
  std::string on_bad = "fail";
  std::string out;  // predict: "" is standard output
  bool json = false;
  ComputeOptions compute;
};

using RunTrain = int(const TrainCommand&);
using RunUse = int(const UseCommand&);

// Names of the functions in the torch library; each returns the exit status.
inline constexpr const char* kTrainFunction = "ramify_run_train";
inline constexpr const char* kEvalFunction = "ramify_run_eval";
inline constexpr const char* kPredictFunction = "ramify_run_predict";

}  // namespace ramify::cli
