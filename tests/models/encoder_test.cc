// BERT and RoBERTa: packing changes nothing, and exact attention is the hierarchical one of a single family.
#include "models/encoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "models/small_model.h"

namespace ramify::models {
namespace {

at::Tensor rows_of(const Encoder& encoder, std::vector<const TokenizedText*> texts, const AttentionPlan& plan,
                   Trace* trace = nullptr) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = encoder.config();
  return encoder.forward(PackedTexts(texts, config.first_position, config.max_tokens(), at::kCPU), plan, trace);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

AttentionPlan swapped(const char* hierarchy, const char* layers, Tie tie = Tie::block) {
  return AttentionPlan::swapped(3, {.hierarchy = TextHierarchy::parse(hierarchy), .tie = tie}, parse_layers(layers, 3));
}

class Encoders : public ::testing::TestWithParam<Family> {
 protected:
  std::shared_ptr<Encoder> encoder_ = [this] {
    auto encoder = random_encoder(small_config(GetParam()), 3);
    encoder->eval();
    return encoder;
  }();
};
INSTANTIATE_TEST_SUITE_P(Families, Encoders, ::testing::Values(Family::bert, Family::roberta));

TEST_P(Encoders, ATextIsTheSameAloneAndInABatch) {
  const TokenizedText a = random_text(9, 1), b = random_text(1, 2), c = random_text(30, 3);
  for (const AttentionPlan& plan : {AttentionPlan::exact(3), swapped("4,2", "0,2"), swapped("3*", "all", Tie::none)}) {
    const at::Tensor all = rows_of(*encoder_, {&a, &b, &c}, plan);
    EXPECT_LT(difference(all.narrow(0, 0, 9), rows_of(*encoder_, {&a}, plan)), 1e-5);
    EXPECT_LT(difference(all.narrow(0, 9, 1), rows_of(*encoder_, {&b}, plan)), 1e-5);
    EXPECT_LT(difference(all.narrow(0, 10, 30), rows_of(*encoder_, {&c}, plan)), 1e-5);
    const at::Tensor twice = rows_of(*encoder_, {&c, &c}, plan);  // equal lengths go another way
    EXPECT_LT(difference(twice.narrow(0, 30, 30), all.narrow(0, 10, 30)), 1e-5);
  }
}

TEST_P(Encoders, OneFamilyOfAllTokensIsExactAttention) {
  const TokenizedText text = random_text(40, 5);
  const at::Tensor exact = rows_of(*encoder_, {&text}, AttentionPlan::exact(3));
  for (const Tie tie : {Tie::block, Tie::none}) {
    EXPECT_LT(difference(rows_of(*encoder_, {&text}, swapped("64", "all", tie)), exact), 1e-5);
  }
  EXPECT_GT(difference(rows_of(*encoder_, {&text}, swapped("4", "all")), exact), 1e-3);
}

TEST_P(Encoders, LayersBeforeTheFirstSwappedOneAreExact) {
  const TokenizedText text = random_text(40, 6);
  Trace exact{.keep_layers = true}, other{.keep_layers = true, .time_attention = true};
  rows_of(*encoder_, {&text}, AttentionPlan::exact(3), &exact);
  rows_of(*encoder_, {&text}, swapped("4,4", "1"), &other);
  ASSERT_EQ(other.layers.size(), 3u);
  EXPECT_EQ(difference(exact.layers[0].rows, other.layers[0].rows), 0);
  EXPECT_GT(difference(exact.layers[1].rows, other.layers[1].rows), 1e-4);
  EXPECT_GT(other.attention_seconds, 0);
}

TEST_P(Encoders, GradientsReachAllParametersThroughSwappedLayers) {
  const TokenizedText text = random_text(12, 7);
  const ModelConfig& config = encoder_->config();
  const TokenizedText* one[] = {&text};
  const PackedTexts packed(one, config.first_position, config.max_tokens(), at::kCPU);
  encoder_->forward(packed, swapped("4,2", "0,2")).square().sum().backward();
  for (const auto& entry : encoder_->named_parameters()) {
    ASSERT_TRUE(entry.value().grad().defined()) << entry.key();
    EXPECT_TRUE(entry.value().grad().isfinite().all().item<bool>()) << entry.key();
  }
}

TEST(Encoder, APlanOfAnotherModelIsRefused) {
  const auto encoder = random_encoder(small_config(), 1);
  const TokenizedText text = random_text(3, 1);
  EXPECT_EQ(testing::error_message([&] { rows_of(*encoder, {&text}, AttentionPlan::exact(2)); }),
            "encoder: a plan for 2 layers; the model has 3");
}

TEST(Encoder, SeedsGiveTheSameWeights) {
  const TokenizedText text = random_text(5, 1);
  const auto rows = [&](uint64_t seed) {
    const auto encoder = random_encoder(small_config(), seed);
    encoder->eval();
    return rows_of(*encoder, {&text}, AttentionPlan::exact(3));
  };
  EXPECT_EQ(difference(rows(4), rows(4)), 0);
  EXPECT_GT(difference(rows(4), rows(5)), 1e-3);
}

}  // namespace
}  // namespace ramify::models
