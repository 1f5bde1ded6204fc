// Which token comes next, given the scores of all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>

namespace ramify::models {

struct SamplerOptions {
  double temperature = 0;  // 0: always the likeliest
  double top_p = 1;        // only among the likeliest that have this much probability together
  uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  // logits [vocabulary]. io::Error where they are not finite.
  int64_t next(const at::Tensor& logits);

 private:
  SamplerOptions options_;
  std::mt19937_64 random_;
};

}  // namespace ramify::models
