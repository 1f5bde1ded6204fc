// LayerNorm of heads, GELU behind a bias, and rows of tables with sparse gradients: what autograd sees of them.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "ops/bias_gelu.h"
#include "ops/head_norm.h"
#include "ops/table_rows.h"

namespace ramify {
namespace {

using TensorList = std::vector<at::Tensor>;

double distance(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  if (a.numel() == 0) return 0;
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / (1 + b.abs().max().item<double>());
}

using RowFunction = std::function<at::Tensor(const TensorList&)>;

// The value of a function and its gradients by all inputs, weighted with `weight`, in their dtype.
TensorList value_and_gradients(const RowFunction& function, const TensorList& inputs, const at::Tensor& weight,
                               at::ScalarType dtype) {
  TensorList leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().to(dtype).requires_grad_());
  const at::Tensor out = function(leaves);
  TensorList all = {out.detach()};
  const TensorList gradients = torch::autograd::grad({(out * weight.to(dtype)).sum()}, leaves);
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

at::Tensor exact_norm(const TensorList& t) {
  return at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2]);
}

TEST(HeadNorm, IsLayerNormWithItsGradients) {
  at::manual_seed(1);
  for (const int64_t dim : {1, 3, 16, 32, 50, 128, 600}) {  // the last one by torch
    const TensorList inputs = {at::randn({90, 4, dim}) * 3 + 1, at::randn({dim}), at::randn({dim})};
    const at::Tensor weight = at::randn({90, 4, dim});
    const auto ours = [](const TensorList& t) { return head_norm(t[0], t[1], t[2]); };
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      const TensorList found = value_and_gradients(ours, inputs, weight, dtype);
      const TensorList wanted = value_and_gradients(exact_norm, inputs, weight, at::kDouble);
      for (size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found[i].scalar_type(), dtype);
        EXPECT_LE(distance(found[i], wanted[i]), dtype == at::kFloat ? 3e-6 : 1e-12) << dim << ", result " << i;
      }
    }
  }
}

TEST(HeadNorm, TakesRowsOfAnyStrideAndNone) {
  at::manual_seed(2);
  const at::Tensor wide = at::randn({7, 6, 40}), gain = at::randn({20}), bias = at::randn({20});
  for (const at::Tensor& rows : {wide.slice(2, 3, 23), wide.transpose(0, 1).slice(2, 0, 20), wide.slice(2, 0, 40, 2),
                                 wide.slice(0, 0, 0).slice(2, 0, 20)}) {
    const at::Tensor weight = at::randn(rows.sizes());
    const auto ours = [](const TensorList& t) { return head_norm(t[0], t[1], t[2]); };
    const TensorList found = value_and_gradients(ours, {rows, gain, bias}, weight, at::kFloat);
    const TensorList wanted = value_and_gradients(exact_norm, {rows, gain, bias}, weight, at::kDouble);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LE(distance(found[i], wanted[i]), 3e-6);
    EXPECT_LE(distance(head_norm(rows, gain, bias), at::layer_norm(rows, {20}, gain, bias)), 3e-6);
  }
}

TEST(HeadNorm, AddsTheGradientsOfItsTwoUsers) {
  at::manual_seed(3);
  const TensorList inputs = {at::randn({30, 2, 24}), at::randn({24}), at::randn({24})};
  const at::Tensor weight = at::randn({30, 2, 24});
  const auto both = [](const TensorList& t) {
    const auto [a, b] = head_norm_for_two(t[0], t[1], t[2]);
    return a.tanh() + b * 3;
  };
  const auto one = [](const TensorList& t) {
    const auto [a, b] = head_norm_for_two(t[0], t[1], t[2]);
    return b.tanh();
  };
  const TensorList found = value_and_gradients(both, inputs, weight, at::kFloat),
                   second = value_and_gradients(one, inputs, weight, at::kFloat);
  const TensorList wanted = value_and_gradients(
      [](const TensorList& t) { return exact_norm(t).tanh() + exact_norm(t) * 3; }, inputs, weight, at::kDouble);
  const TensorList wanted_second =
      value_and_gradients([](const TensorList& t) { return exact_norm(t).tanh(); }, inputs, weight, at::kDouble);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_LE(distance(found[i], wanted[i]), 3e-6);
    EXPECT_LE(distance(second[i], wanted_second[i]), 3e-6);
  }
}

TEST(HeadNorm, KeepsBFloat16) {
  at::manual_seed(4);
  const at::Tensor rows = at::randn({50, 3, 32}).to(at::kBFloat16), gain = at::ones({32}), bias = at::zeros({32});
  const at::Tensor out = head_norm(rows, gain, bias);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_LE(distance(out, at::layer_norm(rows.to(at::kDouble), {32})), 1.0 / 256);
}

// d/dx of |d f/dx|²: what gradient penalties need.
at::Tensor second_derivative(const RowFunction& function, const at::Tensor& input, at::ScalarType dtype) {
  const at::Tensor x = input.to(dtype).requires_grad_();
  const at::Tensor first =
      torch::autograd::grad({function({x}).pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  return torch::autograd::grad({first.square().sum()}, {x})[0];
}

TEST(HeadNorm, AndGeluHaveSecondDerivatives) {
  at::manual_seed(5);
  const at::Tensor rows = at::randn({5, 2, 8}), gain = at::randn({8}), bias = at::randn({8}), flat = at::randn({5, 8});
  const auto norm = [&](const TensorList& t) {
    return head_norm(t[0], gain.to(t[0].scalar_type()), bias.to(t[0].scalar_type()));
  };
  EXPECT_LE(distance(second_derivative(norm, rows, at::kFloat), second_derivative(norm, rows, at::kDouble)), 1e-4);
  const at::Tensor exact =
      second_derivative([&](const TensorList& t) { return at::gelu(t[0] + bias.to(at::kDouble)); }, flat, at::kDouble);
  EXPECT_LE(
      distance(second_derivative([&](const TensorList& t) { return bias_gelu(t[0], bias); }, flat, at::kFloat), exact),
      1e-4);
}

TEST(BiasGelu, IsGeluOfTheSumWithItsGradients) {
  at::manual_seed(6);
  for (const at::Tensor& rows : {at::randn({200, 37}) * 2, at::randn({37, 200}).t(), at::zeros({0, 37})}) {
    const TensorList inputs = {rows, at::randn({37})};
    const at::Tensor weight = at::randn(rows.sizes());
    ASSERT_TRUE(has_bias_gelu(rows));
    const TensorList found =
        value_and_gradients([](const TensorList& t) { return bias_gelu(t[0], t[1]); }, inputs, weight, at::kFloat);
    const TensorList wanted =
        value_and_gradients([](const TensorList& t) { return at::gelu(t[0] + t[1]); }, inputs, weight, at::kDouble);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LE(distance(found[i], wanted[i]), 3e-6);
  }
  EXPECT_FALSE(has_bias_gelu(at::zeros({2, 3}, at::kDouble)));
}

TEST(TableRows, HaveSparseGradientsOfTheRowsTaken) {
  at::manual_seed(7);
  const at::Tensor table = at::randn({40, 10}).requires_grad_(), ids = at::randint(0, 20, {300}, at::kLong);
  const at::Tensor weight = at::randn({300, 10});
  const at::Tensor rows = table_rows(table, ids, TableGradient::rows);
  EXPECT_TRUE(rows.detach().equal(at::embedding(table, ids).detach()));
  const at::Tensor found = torch::autograd::grad({(rows * weight).sum()}, {table})[0];
  const at::Tensor wanted = torch::autograd::grad({(at::embedding(table, ids) * weight).sum()}, {table})[0];
  ASSERT_TRUE(found.is_sparse());
  EXPECT_LE(found._values().size(0), 20);
  EXPECT_LE(distance(found.to_dense(), wanted), 1e-6);
}

TEST(TableRows, OfOtherTypesAndOnDemandHaveDenseGradients) {
  const at::Tensor ids = at::zeros({3}, at::kLong);
  const at::Tensor table = at::ones({4, 2}).requires_grad_(), exact = at::ones({4, 2}, at::kDouble).requires_grad_();
  EXPECT_FALSE(torch::autograd::grad({table_rows(table, ids, TableGradient::dense).sum()}, {table})[0].is_sparse());
  EXPECT_FALSE(torch::autograd::grad({table_rows(exact, ids, TableGradient::rows).sum()}, {exact})[0].is_sparse());
}

TEST(TableRows, GradientsOfTwoUsersComeInOrderAgain) {
  at::manual_seed(8);
  at::Tensor table = at::randn({30, 4}).requires_grad_();
  const at::Tensor a = at::randint(0, 30, {50}, at::kLong), b = at::randint(0, 30, {9}, at::kLong);
  (table_rows(table, a, TableGradient::rows).sum() + 2 * table_rows(table, b, TableGradient::rows).sum()).backward();
  const at::Tensor gradient = in_row_order(table.grad());
  const at::Tensor rows = gradient._indices()[0];
  EXPECT_TRUE((rows.slice(0, 1) > rows.slice(0, 0, -1)).all().item<bool>());
  at::Tensor wanted = at::zeros({30, 4});
  wanted.index_add_(0, a, at::ones({50, 4})).index_add_(0, b, 2 * at::ones({9, 4}));
  EXPECT_LE(distance(gradient.to_dense(), wanted), 1e-6);
}

}  // namespace
}  // namespace ramify
