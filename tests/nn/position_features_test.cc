// Position vectors at the start: of length 1, and as loud as content once a layer has projected them.
#include "nn/position_features.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "ramify/builders.h"

namespace ramify::nn {
namespace {

constexpr int64_t kRows = 12, kTokens = 30, kTokenWidth = 10;

// Twelve positions of one domain.
Batch batch_of(Domain domain) {
  Batch batch{windows(std::vector<int64_t>{kRows}, Branching()), {}, {}};
  PositionInput& p = batch.positions;
  const at::Tensor numbers = at::arange(kRows, at::kLong);
  if (domain == Domain::key) {
    p.keys = numbers, p.key_tokens = numbers, p.key_token_begin = at::arange(kRows + 1, at::kLong);
  }
  if (domain == Domain::sequence) p.places = numbers * 3;
  if (domain == Domain::grid) {
    p.cells = at::stack({numbers.div(4, "floor"), numbers.remainder(4)}, 1).to(at::kFloat);
  }
  if (domain == Domain::graph) p.graph = at::randn({kRows, 4}) * 0.05;
  p.index = at::arange(-1, kRows, at::kLong);
  return batch;
}

struct Case {
  Domain domain;
  int64_t width, head_dim;
  Keys keys = Keys::learned;
  Frequencies fourier = Frequencies::fixed;
};

at::Tensor features_of(const Case& c) {
  EncoderConfig config;
  config.position_width = c.width, config.keys = c.keys, config.fourier = c.fourier;
  const PositionFeatures features(config, {.num_keys = kRows, .graph_features = 4, .domains = {c.domain}}, kTokenWidth);
  return features.forward(batch_of(c.domain), at::randn({kTokens, kTokenWidth}) * 0.02).rows.at(0).rows;
}

const std::vector<Case>& cases() {
  using enum Domain;
  static const std::vector<Case> all = {
      {key, 64, 32},
      {key, 768, 128},
      {.domain = key, .width = 64, .head_dim = 32, .keys = Keys::tokens},
      {sequence, 64, 32},
      {sequence, 768, 128},
      {.domain = sequence, .width = 128, .head_dim = 32, .fourier = Frequencies::learned},
      {grid, 64, 32},
      {grid, 768, 128},
      {graph, 64, 32},
  };
  return all;
}

TEST(PositionFeatures, HaveLengthOne) {
  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  for (const Case& c : cases()) {
    const at::Tensor lengths = features_of(c).norm(2, {1});
    EXPECT_GT(lengths.min().item<double>(), 0.6) << static_cast<int>(c.domain) << " " << c.width;
    EXPECT_LT(lengths.max().item<double>(), 1.4) << static_cast<int>(c.domain) << " " << c.width;
  }
}

TEST(PositionFeatures, AreProjectedToScoresOfAboutOne) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const Case& c : cases()) {
    const at::Tensor features = features_of(c);
    const LayerConfig config = {.heads = 8, .head_dim = c.head_dim, .width = 4};
    const Layer layer(config, Activation::gelu, {{"leaf", 4}}, {{"position", c.width}});
    const at::Tensor rows = at::linear(features, layer.named_parameters()["positions.position.weight"])
                                .view({kRows, 8, c.head_dim})
                                .transpose(0, 1);
    const at::Tensor scores = rows.matmul(rows.transpose(1, 2));  // [heads, rows, rows]
    const double own = scores.diagonal(0, 1, 2).mean().item<double>();
    const double other = scores.masked_fill(at::eye(kRows, at::kBool), 0)
                             .square()
                             .sum()
                             .div(8 * kRows * (kRows - 1))
                             .sqrt()
                             .item<double>();
    EXPECT_NEAR(own, 1, 0.4) << static_cast<int>(c.domain) << " " << c.width;
    EXPECT_GT(other, 0.03) << static_cast<int>(c.domain) << " " << c.width;
    EXPECT_LT(other, own) << static_cast<int>(c.domain) << " " << c.width;
  }
}

TEST(PositionFeatures, OfPlacesGrowApartWithDistance) {
  const at::NoGradGuard no_grad;
  at::manual_seed(2);
  const at::Tensor features = features_of({Domain::sequence, 768, 128});
  const at::Tensor products = features.matmul(features[0]);
  EXPECT_NEAR(products[0].item<double>(), 1, 1e-5);
  EXPECT_GT(products[1].item<double>(), products[3].item<double>());
  EXPECT_GT(products[3].item<double>(), products[11].item<double>());
  EXPECT_GT(products[11].item<double>(), 0.1);
}

TEST(PositionFeatures, OfAnUnknownKeyAreLikeNoPosition) {
  const at::NoGradGuard no_grad;
  EncoderConfig config;
  const PositionFeatures features(config, {.num_keys = 3, .domains = {Domain::key}}, 0);
  Batch batch = batch_of(Domain::key);
  batch.positions.keys = at::arange(kRows, at::kLong).remainder(4) - 1;
  const at::Tensor rows = features.forward(batch, {}).rows.at(0).rows;
  EXPECT_EQ(rows[0].abs().max().item<double>(), 0);
  EXPECT_GT(rows[1].abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace ramify::nn
