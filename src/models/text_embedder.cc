#include "models/text_embedder.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

namespace ramify::models {

void require_finite(const at::Tensor& vectors) {
  if (vectors.isfinite().all().item<bool>()) return;
  throw io::Error("the model's vectors are not finite: its weights are broken, or too large for its --dtype");
}

at::Tensor embed(const TextModel& model, std::span<const TokenizedText> texts, const EmbedOptions& options) {
  const auto count = static_cast<int64_t>(texts.size());
  at::Tensor vectors = at::zeros({count, model.config().width});
  size_t done = 0;
  for (const std::vector<size_t>& batch : batches_by_length(texts, options.batch_tokens)) {
    std::vector<const TokenizedText*> members;
    std::vector<int64_t> places(batch.begin(), batch.end());
    for (const size_t i : batch) members.push_back(&texts[i]);
    const PackedTexts packed = model.pack(members);
    const at::Tensor rows = model.token_rows(packed, options.plan, options.trace);
    const at::Tensor index = at::from_blob(places.data(), {static_cast<int64_t>(places.size())}, at::dtype(at::kLong));
    vectors.index_copy_(0, index, TextModel::pooled(rows, packed, options.pooling));
    done += batch.size();
    if (options.on_batch && !options.on_batch(done)) break;
  }
  if (!options.normalize) return vectors;
  return vectors / at::linalg_vector_norm(vectors, 2, {1}, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace ramify::models
