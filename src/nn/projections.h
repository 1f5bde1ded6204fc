// Queries, keys and values of one kind of leaves.
#pragma once

#include <vector>

#include "ramify/nn/config.h"
#include "ramify/nn/module.h"

namespace ramify::nn {

// Without bias: the norms of queries and keys have one, the output's does what one of the values could, and they would
// take a tenth of the time of a training step.
class Projections : public Module {
 public:
  // Weights keep the variance of their input. Without attention there are no keys.
  Projections(int64_t in, int64_t out, Attention attention);

  // [n, in] -> queries, values and, with attention, keys, each [n, out], in `dtype`; Undefined: in that of the weights.
  std::vector<at::Tensor> forward(const at::Tensor& rows, at::ScalarType dtype) const;

 private:
  bool has_keys_;
};

}  // namespace ramify::nn
