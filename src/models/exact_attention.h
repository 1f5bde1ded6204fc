// Softmax attention of every token with all tokens of its text: what published models were trained with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ramify/options.h"

namespace ramify::models {

enum class Mask { none, causal };

// q [T, H, d], k, v [T, Hkv, d] -> [T, H, d]. Text i has the rows begin[i], ..., begin[i + 1] - 1. `dropout` of the
// weights: 0 unless training.
at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           std::span<const int64_t> begin, Mask mask, double dropout);

}  // namespace ramify::models
