// What `ramify generate`, `perplexity` and `bench cache` ask of the half of the program that has torch
// (torch_library.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_commands.h"

namespace ramify::cli {

struct GenerateCommand {
  ModelOptions model;
  bool has_prompt = false;
  std::string prompt, prompt_file;
  std::string cache;  // "": as the model was trained
  std::string prompt_hierarchy;
  int64_t max_tokens = 0;
  double temperature = 0, top_p = 1;
  int64_t seed = 0;
  int64_t samples = 1;
  bool ignore_end = false;
  bool json = false;
};

struct PerplexityCommand {
  ModelOptions model;
  std::vector<std::string> texts;
  bool separate = false;
  std::string field = "text";
  int64_t context = 0;
  bool exact = false;
  int64_t batch_tokens = 8192;
  bool json = false;
};

using RunPerplexity = int(const PerplexityCommand&);
inline constexpr const char* kPerplexityFunction = "ramify_run_perplexity";

struct CacheBenchCommand {
  std::vector<int64_t> contexts = {4096, 65536, 1048576};
  int64_t steps = 4096;
  std::string hierarchy = "16*";
  std::string tie = "none";
  int64_t window = 0;
  int64_t heads = 12, dim = 64;
  int64_t kv_context = 65536;
  ComputeOptions compute;
  bool json = false;
};

using RunCacheBench = int(const CacheBenchCommand&);
inline constexpr const char* kCacheBenchFunction = "ramify_run_cache_bench";

using RunGenerate = int(const GenerateCommand&);
inline constexpr const char* kGenerateFunction = "ramify_run_generate";

}  // namespace ramify::cli
