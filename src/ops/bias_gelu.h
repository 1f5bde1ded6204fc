// gelu(rows + bias) in one pass, for what comes out of a matrix product.
#pragma once

#include <ATen/core/Tensor.h>

namespace ramify {

// Whether it takes these rows: float32 on the CPU, [n, width].
bool has_bias_gelu(const at::Tensor& rows);

// rows [n, width], bias [width] -> as rows; gelu is the exact one.
at::Tensor bias_gelu(const at::Tensor& rows, const at::Tensor& bias);

}  // namespace ramify
