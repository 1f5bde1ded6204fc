// LayerNorm of each head of each row, with one gain and one bias for all heads:
//   y = gain · (x - mean) / sqrt(variance + epsilon) + bias
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"

namespace ramify::cpu {

struct NormParams {
  Storage storage = Storage::float32;
  int64_t rows = 0;
  int64_t heads = 1;
  int64_t dim = 0;              // 1 to kMaxDim
  Rows x;                       // [rows, heads, dim]
  const float* gain = nullptr;  // [dim]
  const float* bias = nullptr;  // [dim]; not needed backward
  float epsilon = 1e-5f;
};

void norm_forward(const NormParams& params, const Rows& y, const Threads& threads);

// Gradients of sum(y · grad_y): of x in the storage of x, of gain and bias [dim] in float32. Same bits whatever the
// number of threads.
struct NormBackward {
  Rows grad_y;
  Rows more_grad_y;  // is added to grad_y; without data: nothing
  Rows grad_x;
  float* grad_gain = nullptr;
  float* grad_bias = nullptr;
};
int64_t norm_workspace(const NormParams& params);  // floats that backward needs while it runs
void norm_backward(const NormParams& params, const NormBackward& backward, float* workspace, const Threads& threads);

}  // namespace ramify::cpu
