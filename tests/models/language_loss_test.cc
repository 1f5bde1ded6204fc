// The loss of language models: logits in chunks give what all at once would, values and gradients.
#include "models/language_loss.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "models/small_model.h"

namespace ramify::models {
namespace {

at::Tensor plain_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
}

struct LossCase {
  at::Tensor rows, weight, targets;

  explicit LossCase(at::ScalarType dtype, int64_t count = 37, int64_t words = 29) {
    at::manual_seed(4);
    rows = at::randn({count, 6}, at::dtype(dtype)).requires_grad_();
    weight = at::randn({words, 6}, at::dtype(dtype)).requires_grad_();
    targets = at::randint(words, {count}, at::dtype(at::kLong));
  }
};

TEST(LanguageLoss, ChunksGiveTheSumAndTheGradientsOfAllAtOnce) {
  for (const int64_t logits : {1, 29, 100, 1 << 20}) {  // a row at a time, several, all
    LossCase chunked(at::kDouble), plain(at::kDouble);
    const at::Tensor got =
        chunked_cross_entropy(chunked.rows, chunked.weight, chunked.targets, {.logits = logits}) * 0.3;
    const at::Tensor wanted = plain_sum(at::linear(plain.rows, plain.weight), plain.targets) * 0.3;
    EXPECT_TRUE(at::allclose(got, wanted, 1e-12, 0));
    got.backward();
    wanted.backward();
    EXPECT_TRUE(at::allclose(chunked.rows.grad(), plain.rows.grad(), 1e-10, 1e-12)) << logits;
    EXPECT_TRUE(at::allclose(chunked.weight.grad(), plain.weight.grad(), 1e-10, 1e-12)) << logits;
  }
}

TEST(LanguageLoss, SingleAndHalfPrecisionAreClose) {
  const LossCase exact(at::kFloat);
  const at::Tensor wanted = plain_sum(at::linear(exact.rows, exact.weight), exact.targets).to(at::kDouble);
  for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 1e-6}, {at::kBFloat16, 2e-2}}) {
    LossCase loss(at::kFloat);
    const at::Tensor got =
        chunked_cross_entropy(loss.rows, loss.weight, loss.targets, {.logits = 64, .product_dtype = dtype});
    EXPECT_TRUE(at::allclose(got, wanted, tolerance, 0));
    got.backward();
    EXPECT_EQ(loss.weight.grad().scalar_type(), at::kFloat);
  }
}

TEST(LanguageLoss, WithoutGradientsTheSumIsTheSame) {
  const LossCase loss(at::kFloat);
  const at::Tensor with = chunked_cross_entropy(loss.rows, loss.weight, loss.targets, {.logits = 64});
  const at::NoGradGuard no_grad;
  const at::Tensor without = chunked_cross_entropy(loss.rows, loss.weight, loss.targets, {.logits = 64});
  EXPECT_TRUE(with.equal(without));
  EXPECT_FALSE(without.requires_grad());
}

std::shared_ptr<Decoder> small_decoder() {
  ModelConfig config = small_config(Family::llama);
  config.kv_heads = 1;
  config.activation = Activation::silu;
  config.norm_epsilon = 1e-5;
  config.tied_output = true;
  at::manual_seed(2);
  auto decoder = std::make_shared<Decoder>(config, Decoder::Output::tied);
  decoder->initialize_for_training();
  return decoder;
}

PackedTexts packed(const std::vector<TokenizedText>& texts) {
  std::vector<const TokenizedText*> pointers;
  for (const TokenizedText& text : texts) pointers.push_back(&text);
  return PackedTexts(pointers, 0, 64, at::kCPU);
}

TEST(LanguageLoss, EveryTokenButTheFirstOfATextCounts) {
  const auto decoder = small_decoder();
  const std::vector<TokenizedText> texts = {random_text(9, 1), random_text(1, 2), random_text(14, 3)};
  for (const bool exact : {true, false}) {
    const AttentionPlan plan =
        exact ? AttentionPlan::exact(3)
              : AttentionPlan::swapped(3, {.hierarchy = TextHierarchy::parse("4*"), .tie = Tie::none}, {0, 1, 2});
    decoder->zero_grad();
    const TextLoss together = text_loss(*decoder, packed(texts), plan);
    EXPECT_EQ(together.tokens, 8 + 0 + 13);
    together.sum.backward();
    std::vector<at::Tensor> got;
    for (const at::Tensor& parameter : decoder->parameters()) got.push_back(parameter.grad().clone());

    decoder->zero_grad();
    at::Tensor wanted;
    for (const size_t t : {0, 2}) {
      const PackedTexts alone = packed({texts[t]});
      const int64_t last = alone.num_tokens() - 1;
      const at::Tensor logits = decoder->logits(decoder->forward(alone, plan).narrow(0, 0, last));
      const at::Tensor sum = plain_sum(logits, alone.ids().narrow(0, 1, last));
      wanted = wanted.defined() ? wanted + sum : sum;
    }
    EXPECT_TRUE(at::allclose(together.sum, wanted.to(at::kDouble), 1e-5, 0));
    wanted.backward();
    const auto parameters = decoder->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) EXPECT_TRUE(at::allclose(got[p], parameters[p].grad(), 1e-3, 1e-4));
  }
}

TEST(LanguageLoss, TextsOfOneTokenHaveNone) {
  const auto decoder = small_decoder();
  const TextLoss loss = text_loss(*decoder, packed({random_text(1, 2)}), AttentionPlan::exact(3));
  EXPECT_EQ(loss.tokens, 0);
  EXPECT_EQ(loss.sum.item<double>(), 0);
}

TEST(LanguageLoss, AStoredDecoderIsTheSameAndSaysItsAttention) {
  const testing::TemporaryFolder folder;
  const auto decoder = small_decoder();
  const HierarchicalAttention attention{.hierarchy = TextHierarchy::parse("16*"), .tie = Tie::none, .window = 32};
  nlohmann::json config = decoder->config().to_json();
  config["ramify"] = attention_note(attention);
  folder.write("config.json", config.dump());
  save_decoder(*decoder, folder / "model.safetensors");
  const auto loaded = load_decoder(folder.path());
  const PackedTexts text = packed({random_text(9, 1)});
  EXPECT_TRUE(loaded->forward(text, AttentionPlan::exact(3)).equal(decoder->forward(text, AttentionPlan::exact(3))));
  EXPECT_EQ(trained_plan(folder.path()), AttentionPlan::swapped(3, attention, {0, 1, 2}));

  config["ramify"] = attention_note(std::nullopt);
  folder.write("config.json", config.dump());
  EXPECT_TRUE(trained_plan(folder.path()).is_exact());
  config["ramify"] = {{"attention", "hierarchical"}, {"hierarchy", "sixteen"}, {"tie", "none"}};
  folder.write("config.json", config.dump());
  EXPECT_THROW(trained_plan(folder.path()), io::Error);
  config.erase("ramify");
  folder.write("config.json", config.dump());
  EXPECT_TRUE(trained_plan(folder.path()).is_exact());
}

}  // namespace
}  // namespace ramify::models
