// What `ramify encode`, `compare` and `bench model` ask of the half of the program that has torch (torch_library.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "signal/text_records.h"
#include "training_commands.h"

namespace ramify::cli {

// A published model and how its attention is swapped.
struct ModelOptions {
  std::string folder;
  std::string hierarchy;  // "": exact attention
  std::string layers = "all";
  std::string tie = "block";
  bool include_self = true;
  int64_t window = 0;                // decoders: so many tokens are seen one by one
  bool allow_extrapolation = false;  // decoders: behind the positions that it was trained with
  std::string dtype = "float32";
  int64_t max_tokens = 0;  // of a text; 0: as many as the model takes
  ComputeOptions compute;
};

struct EncodeCommand {
  ModelOptions model;
  std::vector<std::string> texts;
  signal::TextFields fields;
  std::string pooling = "mean";
  bool normalize = false;
  int64_t batch_tokens = 8192;
  std::string out;  // "": JSON lines to standard output; *.safetensors: one tensor
};

struct CompareCommand {
  ModelOptions model;
  std::vector<std::string> data, test;
  signal::TextFields fields;
  std::vector<std::string> variants;  // as compare::Variant reads them
  bool ablation = false;
  std::string pooling = "mean";
  int64_t limit = 0, limit_test = 0;  // texts, drawn at random; 0: all
  int64_t seed = 0;
  int64_t folds = 5;
  int64_t drift_texts = 16;
  int64_t batch_tokens = 8192;
  std::string json, html;  // files; json "-": standard output, instead of the table
};

struct ModelBenchCommand {
  ModelOptions model;
  std::vector<int64_t> tokens = {128, 512, 2048, 8192};  // one row each
  int64_t batch = 1;                                     // texts
  bool json = false;
};

using RunModelBench = int(const ModelBenchCommand&);
inline constexpr const char* kModelBenchFunction = "ramify_run_model_bench";

using RunCompare = int(const CompareCommand&);
inline constexpr const char* kCompareFunction = "ramify_run_compare";

using RunEncode = int(const EncodeCommand&);
inline constexpr const char* kEncodeFunction = "ramify_run_encode";

}  // namespace ramify::cli
