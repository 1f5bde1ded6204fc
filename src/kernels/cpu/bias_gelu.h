// What follows a matrix product, in one pass: y = gelu(x + bias), with gelu(u) = u · (1 + erf(u / √2)) / 2. float32.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"

namespace ramify::cpu {

struct BiasGeluParams {
  int64_t rows = 0, width = 0;
  const float* x = nullptr;     // [rows, width]
  const float* bias = nullptr;  // [width]
};

void bias_gelu_forward(const BiasGeluParams& params, float* y, const Threads& threads);

// Gradients of sum(y · grad_y), by x [rows, width] and by bias [width]. Same bits whatever the number of threads.
int64_t bias_gelu_workspace(const BiasGeluParams& params);  // floats that backward needs while it runs
struct BiasGeluBackward {
  const float* grad_y = nullptr;
  float* grad_x = nullptr;
  float* grad_bias = nullptr;
};
void bias_gelu_backward(const BiasGeluParams& params, const BiasGeluBackward& backward, float* workspace,
                        const Threads& threads);

}  // namespace ramify::cpu
