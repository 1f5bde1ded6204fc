#include "compare/logistic_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/std.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <deque>
#include <functional>

namespace ramify::compare {
namespace {

struct Slope {
  double value;
  at::Tensor gradient;
};
using Function = std::function<Slope(const at::Tensor&)>;

// One step that L-BFGS remembers: how the point and the gradient moved.
struct Step {
  at::Tensor point, gradient;
  double product;
};

double product(const at::Tensor& a, const at::Tensor& b) {
  return at::dot(a.flatten(), b.flatten()).item<double>();
}

// The two-loop recursion.
at::Tensor direction(const std::deque<Step>& steps, const at::Tensor& gradient) {
  at::Tensor d = -gradient;
  std::vector<double> shares;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    shares.push_back(product(step->point, d) / step->product);
    d = d - shares.back() * step->gradient;
  }
  if (!steps.empty()) d = d * (steps.back().product / product(steps.back().gradient, steps.back().gradient));
  for (const Step& step : steps) {
    d = d + (shares.back() - product(step.gradient, d) / step.product) * step.point;
    shares.pop_back();
  }
  return d;
}

at::Tensor minimum(const Function& function, at::Tensor point) {
  constexpr int kMaxSteps = 500, kMemory = 10, kHalvings = 30;
  constexpr double kFlat = 1e-6, kSufficient = 1e-4;
  std::deque<Step> steps;
  Slope here = function(point);
  for (int i = 0; i < kMaxSteps && here.gradient.abs().max().item<double>() > kFlat; ++i) {
    const at::Tensor d = direction(steps, here.gradient);
    const double descent = product(d, here.gradient);
    double length = i == 0 ? 1 / std::max(1.0, here.gradient.norm().item<double>()) : 1;
    at::Tensor next = point + length * d;
    Slope there = function(next);
    for (int h = 0; h < kHalvings && !(there.value <= here.value + kSufficient * length * descent); ++h) {
      length /= 2;
      next = point + length * d;
      there = function(next);
    }
    if (!(there.value < here.value)) break;  // rounding
    const Step step{next - point, there.gradient - here.gradient, 0};
    if (const double curve = product(step.point, step.gradient); curve > 0) {
      steps.push_back({step.point, step.gradient, curve});
      if (steps.size() > kMemory) steps.pop_front();
    }
    point = next;
    here = there;
  }
  return point;
}

}  // namespace

LogisticHead LogisticHead::fit(const at::Tensor& vectors, const std::vector<int64_t>& classes, int64_t num_classes,
                               double penalty) {
  const at::NoGradGuard no_grad;
  LogisticHead head;
  const at::Tensor wide = vectors.to(at::kDouble);
  head.mean_ = wide.mean(0);
  head.deviation_ = at::std(wide, {0}, /*unbiased=*/false).clamp_min(1e-12);
  const at::Tensor scaled = (wide - head.mean_) / head.deviation_;
  const at::Tensor rows = at::cat({scaled, at::ones({wide.size(0), 1}, wide.options())}, 1);
  const at::Tensor truth = at::one_hot(at::tensor(classes), num_classes).to(at::kDouble);
  const auto count = static_cast<double>(wide.size(0));
  const int64_t width = wide.size(1);

  const Function loss = [&](const at::Tensor& weights) {
    const at::Tensor logs = at::log_softmax(at::mm(rows, weights), 1);
    at::Tensor gradient = at::mm(rows.t(), logs.exp() - truth) / count;
    const at::Tensor punished = weights.narrow(0, 0, width);
    gradient.narrow(0, 0, width).add_(punished, penalty);
    const double value = -(logs * truth).sum().item<double>() / count + penalty / 2 * product(punished, punished);
    return Slope{value, gradient};
  };
  head.weights_ = minimum(loss, at::zeros({width + 1, num_classes}, wide.options()));
  return head;
}

std::vector<int64_t> LogisticHead::predict(const at::Tensor& vectors) const {
  const at::Tensor scaled = (vectors.to(at::kDouble) - mean_) / deviation_;
  const int64_t width = scaled.size(1);
  const at::Tensor scores = at::mm(scaled, weights_.narrow(0, 0, width)) + weights_[width];
  const at::Tensor best = scores.argmax(1).contiguous();
  const auto* values = best.const_data_ptr<int64_t>();
  return {values, values + best.numel()};
}

}  // namespace ramify::compare
