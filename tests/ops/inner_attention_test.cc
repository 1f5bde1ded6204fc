// Attention inside families as a replaceable piece: another one is really used, and random features converge.
#include "ramify/inner_attention.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "ops/torch_case.h"

namespace ramify {
namespace {

using testing::near;
using Array = std::vector<int64_t>;

// Exact attention that keeps what it was given.
class Recorder final : public InnerAttention {
 public:
  FamilyAttentionOutput operator()(const FamilyAttentionInput& input) const override {
    inputs.push_back(input);
    return ExactAttention()(input);
  }
  mutable std::vector<FamilyAttentionInput> inputs;
};

// Sees the siblings, but all alike.
class UniformAttention final : public InnerAttention {
 public:
  FamilyAttentionOutput operator()(const FamilyAttentionInput& input) const override {
    FamilyAttentionInput blind = input;
    blind.q = at::zeros_like(input.q);
    return ExactAttention()(blind);
  }
};

struct Tensors {
  at::Tensor q, k, v;
};

Tensors random_tensors(int64_t leaves, int64_t heads, int64_t dim) {
  return {at::randn({leaves, heads, dim}, at::kDouble), at::randn({leaves, heads, dim}, at::kDouble),
          at::randn({leaves, heads, dim}, at::kDouble)};
}

TEST(InnerAttention, IsCalledOnceForEveryBatchOfFamilies) {
  const auto [q, k, v] = random_tensors(16, 2, 3);
  const ForestTensors forest(windows(Array{16}, Branching::parse("4*")));
  AttentionOptions options;
  options.positions = at::randn({4, 2, 5}, at::kDouble);
  const Recorder recorder;
  const AttentionOutput output = composed_attention(q, k, v, forest, options, recorder);
  EXPECT_TRUE(near(output.out, attention(q, k, v, forest, options), 1e-12));
  EXPECT_TRUE(near(output.energy, energy(q, k, forest, options), 1e-12));
  ASSERT_EQ(recorder.inputs.size(), 2);
  int64_t families = 0;
  for (const FamilyAttentionInput& input : recorder.inputs) {
    families += input.k.size(1);
    EXPECT_EQ(input.q.size(0), 2);
    EXPECT_EQ(input.k.size(2), 4);
    EXPECT_EQ(input.key_positions.size(3), 5);
    EXPECT_EQ(input.mask, SiblingMask::others);
    EXPECT_DOUBLE_EQ(input.scale, 1 / std::sqrt(3.0));
  }
  EXPECT_EQ(families, 5);
  options.causal = Causal::block;
  const Recorder causal;
  composed_attention(q, k, v, forest, options, causal);
  ASSERT_FALSE(causal.inputs.empty());
  EXPECT_EQ(causal.inputs[0].mask, SiblingMask::left);
}

TEST(InnerAttention, DecidesTheWeights) {
  const auto [q, k, v] = random_tensors(6, 1, 3);
  const AttentionOutput output = composed_attention(q, k, v, windows(Array{6}, {}), {}, UniformAttention());
  EXPECT_TRUE(near(output.out, (v.sum(0, true) - v) / 5, 1e-12));
}

TEST(InnerAttention, ExactOneIsDifferentiableAndGivesNothingWhereNothingIsVisible) {
  FamilyAttentionInput input;
  input.q = at::randn({1, 1, 3, 2}, at::kDouble).requires_grad_();
  input.k = at::randn({1, 1, 3, 2}, at::kDouble);
  input.v = at::randn({1, 1, 3, 2}, at::kDouble);
  input.log_size = testing::tensor_of(std::vector<double>{0, 0, 0}, {1, 3});
  input.own = testing::tensor_of(Array{0, 1, 2}, {1, 3});
  input.mask = SiblingMask::left;
  const FamilyAttentionOutput output = ExactAttention()(input);
  EXPECT_TRUE(output.log_sum_exp.isneginf().equal(testing::tensor_of(Array{1, 0, 0}, {1, 1, 3}).to(at::kBool)));
  EXPECT_TRUE((output.out.select(2, 0) == 0).all().item<bool>());
  output.out.sum().backward();
  EXPECT_TRUE(input.q.grad().isfinite().all().item<bool>());
  const at::Tensor scores = family_scores(input).detach();
  EXPECT_TRUE(scores.isneginf().sum().item<int64_t>() == 6);
}

// Mean absolute error of random features on one wide family, over a few seeds.
double favor_error(int64_t features, Causal causal) {
  const ForestTensors forest(windows(Array{512}, {}));
  AttentionOptions options;
  options.causal = causal;
  double error = 0;
  constexpr uint64_t kSeeds = 5;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    testing::AttentionCase c;
    c.forest = forest.forest();
    c.dim = 8, c.position_dim = 0, c.key_heads = 2;
    testing::TorchCase inputs = testing::torch_case(c, seed);
    inputs.q *= 0.5, inputs.k *= 0.5;  // the error grows exponentially with the norms
    const at::Tensor exact = attention(inputs.q, inputs.k, inputs.v, forest, options);
    const FavorAttention favor(features, seed);
    const at::Tensor approximate = composed_attention(inputs.q, inputs.k, inputs.v, forest, options, favor).out;
    error += (approximate - exact).abs().mean().item<double>() / kSeeds;
  }
  return error;
}

TEST(FavorAttention, ErrorFallsAsFeaturesGrow) {
  for (const Causal causal : {Causal::none, Causal::block}) {
    const double coarse = favor_error(16, causal), middle = favor_error(128, causal), fine = favor_error(1024, causal);
    EXPECT_LT(middle, coarse / 1.5);
    EXPECT_LT(fine, middle / 1.5);
    EXPECT_LT(fine, 0.05);
  }
}

TEST(FavorAttention, IsFixedByItsSeedAndDifferentiable) {
  const auto [q, k, v] = random_tensors(32, 1, 4);
  const ForestTensors forest(windows(Array{32}, {}));
  const auto run = [&, &q = q, &k = k, &v = v](uint64_t seed) {
    return composed_attention(q, k, v, forest, {}, FavorAttention(64, seed)).out;
  };
  EXPECT_TRUE(run(1).equal(run(1)));
  EXPECT_FALSE(run(1).equal(run(2)));
  const at::Tensor query = testing::leaf_variable(q);
  composed_attention(query, k, v, forest, {}, FavorAttention(64)).out.square().sum().backward();
  EXPECT_TRUE(query.grad().isfinite().all().item<bool>());
  EXPECT_FALSE((query.grad() == 0).all().item<bool>());
}

TEST(FavorAttention, NeedsAFeature) {
  EXPECT_EQ(testing::error_message([] { FavorAttention(0); }), "FavorAttention: 0 features; expected at least 1");
}

}  // namespace
}  // namespace ramify
