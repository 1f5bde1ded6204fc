#include "models/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>

#include "io/error.h"

namespace ramify::models {

int64_t Sampler::next(const at::Tensor& logits) {
  const at::Tensor scores = logits.to(at::kCPU, at::kDouble);
  if (!at::isfinite(scores).all().item<bool>()) throw io::Error("the model gives scores that are no numbers");
  if (options_.temperature == 0) return scores.argmax().item<int64_t>();
  const auto [probabilities, ids] = at::softmax(scores / options_.temperature, 0).sort(0, /*descending=*/true);
  const auto* p = probabilities.const_data_ptr<double>();
  int64_t count = 0;
  double total = 0;
  while (count < probabilities.numel() && (count == 0 || total < options_.top_p)) total += p[count++];
  // 53 bits, the same on every machine, which std::uniform_real_distribution is not
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  int64_t chosen = 0;
  while (chosen + 1 < count && left >= p[chosen]) left -= p[chosen++];
  return ids.const_data_ptr<int64_t>()[chosen];
}

}  // namespace ramify::models
