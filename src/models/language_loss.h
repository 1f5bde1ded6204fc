// How well a decoder foretells its texts: the negative log likelihood of every token but the first of each text, which
// nothing comes before. exp(sum / tokens) is the perplexity. The same sum is the loss of training.
//
// Logits of all tokens are never there at once: 32,768 tokens × 32,000 words would be 4 GB. They are made for some rows
// at a time, and with them, where a gradient is wanted, the gradient of those rows, which is exact.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/attention_plan.h"
#include "models/decoder.h"
#include "models/packed_texts.h"

namespace ramify::models {

struct TextLoss {
  at::Tensor sum;      // [] float64, in nats, differentiable by the decoder's parameters; waits for no device
  int64_t tokens = 0;  // that were foretold; 0: no text has two tokens, and the sum is 0
};
TextLoss text_loss(const Decoder& decoder, const PackedTexts& texts, const AttentionPlan& plan);

struct ChunkOptions {
  int64_t logits = int64_t{1} << 24;                         // at most so many at once, or one row's: 64 MiB
  at::ScalarType product_dtype = at::ScalarType::Undefined;  // of rows · weightᵀ; Undefined: that of `rows`
};
// Σ_i −log softmax(rows_i · weightᵀ)[targets_i], [] float64. rows [n, width], weight [words, width], targets [n] int64.
// Has a gradient by rows and weight, but no second one.
at::Tensor chunked_cross_entropy(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& targets,
                                 const ChunkOptions& options = {});

}  // namespace ramify::models
