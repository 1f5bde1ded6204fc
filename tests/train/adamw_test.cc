// The optimiser against the textbook's formulas, and the schedule.
#include "train/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/schedule.h"

namespace ramify::train {
namespace {

at::Tensor parameter(at::IntArrayRef shape) {
  return at::randn(shape).requires_grad_();
}

TEST(AdamWTest, FollowsTheFormulasForMatricesAndVectors) {
  at::Tensor matrix = parameter({3, 4}), vector = parameter({4});
  at::Tensor wanted_matrix = matrix.detach().to(at::kDouble), wanted_vector = vector.detach().to(at::kDouble);
  AdamW optimizer({{"matrix", matrix}, {"vector", vector}}, {.weight_decay = 0.1});
  at::Tensor means[2], squares[2];
  for (int step = 1; step <= 5; ++step) {
    int i = 0;
    for (auto [tensor, wanted, decay] : {std::tuple{matrix, wanted_matrix, 0.1}, {vector, wanted_vector, 0.0}}) {
      const at::Tensor gradient = at::randn(tensor.sizes());
      tensor.mutable_grad() = gradient;
      const at::Tensor g = gradient.to(at::kDouble);
      means[i] = step == 1 ? 0.1 * g : 0.9 * means[i] + 0.1 * g;
      squares[i] = step == 1 ? 0.001 * g * g : 0.999 * squares[i] + 0.001 * g * g;
      const at::Tensor mean = means[i] / (1 - std::pow(0.9, step)), square = squares[i] / (1 - std::pow(0.999, step));
      wanted.mul_(1 - 0.01 * decay);
      wanted.sub_(0.01 * mean / (square.sqrt() + 1e-8));
      ++i;
    }
    optimizer.step(0.01);
  }
  EXPECT_TRUE(at::allclose(matrix.detach().to(at::kDouble), wanted_matrix, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(vector.detach().to(at::kDouble), wanted_vector, 1e-5, 1e-6));
}

// Steps with gradients of a part of the rows, dense and sparse; `order` is that of the sparse rows.
TEST(AdamWTest, TakesSparseGradientsAsDenseOnesWithZeros) {
  at::manual_seed(1);
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{2, 7, 11}, {11, 2, 7, 2}}) {
    at::Tensor dense = parameter({12, 5}), sparse = dense.detach().clone().requires_grad_();
    AdamW first({{"p", dense}}, {.weight_decay = 0.1}), second({{"p", sparse}}, {.weight_decay = 0.1});
    for (int step = 0; step < 6; ++step) {
      const at::Tensor rows = at::tensor(step == 4 ? std::vector<int64_t>{1} : order, at::kLong);
      const at::Tensor values = at::randn({rows.size(0), 5});
      dense.mutable_grad() = at::zeros({12, 5}).index_add_(0, rows, values);
      sparse.mutable_grad() = at::sparse_coo_tensor(rows.unsqueeze(0), values, {12, 5});
      for (AdamW* optimizer : {&first, &second}) {
        optimizer->clip_gradients(1);
        optimizer->step(0.05);
        optimizer->clear_gradients();
      }
    }
    EXPECT_TRUE(at::allclose(sparse.detach(), dense.detach(), 1e-5, 1e-6));
    const models::NamedTensors wanted = first.state(), found = second.state();
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i].second, wanted[i].second, 1e-5, 1e-7)) << wanted[i].first;
    }
  }
}

TEST(AdamWTest, LeavesParametersWithoutGradientAlone) {
  at::Tensor used = parameter({2, 2}), unused = parameter({2, 2});
  const at::Tensor before = unused.detach().clone();
  AdamW optimizer({{"used", used}, {"unused", unused}}, {});
  used.mutable_grad() = at::ones({2, 2});
  optimizer.step(0.1);
  EXPECT_TRUE(before.equal(unused.detach()));
}

TEST(AdamWTest, ClipsTheNormOfAllGradientsTogether) {
  at::Tensor a = parameter({3}), b = parameter({1});
  AdamW optimizer({{"a", a}, {"b", b}}, {});
  a.mutable_grad() = at::full({3}, 2.0);
  b.mutable_grad() = at::full({1}, 2.0);  // norm 4
  optimizer.clip_gradients(1);
  EXPECT_NEAR(a.grad()[0].item<float>(), 0.5, 1e-5);
  EXPECT_NEAR(b.grad()[0].item<float>(), 0.5, 1e-5);
  optimizer.clip_gradients(100);
  EXPECT_NEAR(a.grad()[0].item<float>(), 0.5, 1e-5);
}

TEST(AdamWTest, GoesOnFromItsState) {
  at::Tensor a = parameter({3, 3}), b = a.detach().clone().requires_grad_();
  AdamW first({{"p", a}}, {}), second({{"p", b}}, {});
  a.mutable_grad() = at::randn({3, 3});
  first.step(0.1);
  b.detach().copy_(a.detach());
  const models::NamedTensors from = first.state(), to = second.state();
  for (size_t i = 0; i < from.size(); ++i) at::Tensor(to[i].second).copy_(from[i].second);
  a.mutable_grad() = b.mutable_grad() = at::randn({3, 3});
  first.step(0.1);
  second.step(0.1);
  EXPECT_TRUE(a.detach().equal(b.detach()));
}

TEST(ScheduleTest, RisesThenFallsToZero) {
  EXPECT_DOUBLE_EQ(schedule_factor(0, 4, 12), 0.25);
  EXPECT_DOUBLE_EQ(schedule_factor(3, 4, 12), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(4, 4, 12), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(8, 4, 12), 0.5);
  EXPECT_DOUBLE_EQ(schedule_factor(12, 4, 12), 0);
  EXPECT_DOUBLE_EQ(schedule_factor(0, 0, 1), 1);
}

}  // namespace
}  // namespace ramify::train
