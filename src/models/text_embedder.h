// Vectors of many texts: batched by length, given back in order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>

#include "models/text_model.h"

namespace ramify::models {

struct EmbedOptions {
  AttentionPlan plan;
  Pooling pooling = Pooling::mean;
  bool normalize = false;       // vectors of length 1
  int64_t batch_tokens = 8192;  // at most, in one batch
  Trace* trace = nullptr;
  std::function<bool(size_t texts)> on_batch;  // how many are done; false: stop
};

// [texts, width] float32. Rows of texts that were not reached before a stop are 0.
at::Tensor embed(const TextModel& model, std::span<const TokenizedText> texts, const EmbedOptions& options);

// io::Error unless all vectors are finite.
void require_finite(const at::Tensor& vectors);

}  // namespace ramify::models
