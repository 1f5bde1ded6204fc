// Softmax attention of texts of different lengths.
#include "models/exact_attention.h"

#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <vector>

namespace ramify::models {
namespace {

// One call over all texts against one a text, with gradients.
TEST(ExactAttention, IsTheSameForPaddedTexts) {
  const PackedRows texts({0, 5, 5, 6, 14});
  const auto options = at::dtype(at::kDouble);
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (const std::optional<int64_t> window : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
      at::manual_seed(1);
      at::Tensor q = at::randn({14, 3, 8}, options), k = at::randn({14, 3, 8}, options),
                 v = at::randn({14, 3, 4}, options);
      const at::Tensor gradient = at::randn({14, 3, 4}, options);
      for (at::Tensor* input : {&q, &k, &v}) input->set_requires_grad(true);
      std::vector<at::Tensor> found[2];
      for (const bool is_padded : {false, true}) {
        for (at::Tensor* input : {&q, &k, &v}) input->mutable_grad() = at::Tensor();
        const at::Tensor out = is_padded ? padded_attention(q, k, v, texts, {mask, 0, window})
                                         : exact_attention(q, k, v, texts, {mask, 0, window});
        out.backward(gradient);
        found[is_padded] = {out.detach(), q.grad(), k.grad(), v.grad()};
      }
      for (size_t i = 0; i < found[0].size(); ++i) {
        EXPECT_TRUE(at::allclose(found[1][i], found[0][i], 1e-9, 1e-12)) << i << " window " << window.has_value();
      }
    }
  }
}

// What is kept for the other layers of a batch serves training, too, where it was made in inference mode.
TEST(ExactAttention, PaddedTextsMetInInferenceModeCanBeTrainedOn) {
  const PackedRows texts({0, 2, 5});
  at::Tensor q = at::randn({5, 1, 4});
  {
    const c10::InferenceMode inference;
    padded_attention(q.clone(), q.clone(), q.clone(), texts, {});
  }
  q.set_requires_grad(true);
  padded_attention(q, q, q, texts, {}).sum().backward();
  EXPECT_GT(q.grad().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace ramify::models
