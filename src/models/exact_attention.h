// Softmax attention of every token with all tokens of its text: what published models were trained with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "models/packed_rows.h"

namespace ramify::models {

enum class Mask { none, causal };

struct ExactOptions {
  Mask mask = Mask::none;
  double dropout = 0;             // of the weights: 0 unless training
  std::optional<int64_t> window;  // tokens at most this far away are seen, others not at all
};

// q [T, H, d], k, v [T, Hkv, d] -> [T, H, d].
at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PackedRows& texts,
                           const ExactOptions& options);

// The same in one call, with all texts as long as the longest: what GPUs want, where many small calls take longer than
// what is multiplied for nothing.
at::Tensor padded_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PackedRows& texts,
                            const ExactOptions& options);

}  // namespace ramify::models
