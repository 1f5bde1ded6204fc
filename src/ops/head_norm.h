// LayerNorm of each head by itself, with one gain and one bias for all heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace ramify {

// rows [T, heads, dim], gain and bias [dim] -> as rows. By the fused kernels on the CPU, elsewhere and in float64 by
// torch's.
at::Tensor head_norm(const at::Tensor& rows, const at::Tensor& gain, const at::Tensor& bias);

// The same for two users, in the same memory: neither may change it. What each of them says about its gradient is added
// on the way, where torch would take a pass over the rows.
std::array<at::Tensor, 2> head_norm_for_two(const at::Tensor& rows, const at::Tensor& gain, const at::Tensor& bias);

}  // namespace ramify
