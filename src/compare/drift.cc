#include "compare/drift.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <limits>

#include "ramify/attention.h"

namespace ramify::compare {
namespace {

std::vector<models::Trace::Layer> traced(const models::TextModel& model, const models::PackedTexts& text,
                                         const models::AttentionPlan& plan) {
  models::Trace trace{.keep_layers = true};
  model.token_rows(text, plan, &trace);
  return std::move(trace.layers);
}

// [H, T, T]: the logarithm of every exact weight.
at::Tensor exact_logs(const at::Tensor& q, const at::Tensor& k) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2)));
  return at::log_softmax(at::matmul(q.transpose(0, 1), k.permute({1, 2, 0})) * scale, 2);
}

}  // namespace

DriftReference::DriftReference(const models::TextModel& model, std::span<const models::TokenizedText* const> texts)
    : model_(model) {
  const auto plan = models::AttentionPlan::exact(model.num_layers());
  for (const models::TokenizedText* text : texts) {
    texts_.push_back(model.pack({&text, 1}));
    exact_.push_back(traced(model, texts_.back(), plan));
  }
}

double DriftReference::divergence(size_t layer, const models::HierarchicalAttention& choice) const {
  const at::NoGradGuard no_grad;
  double sum = 0, rows = 0;
  AttentionOptions options;
  options.tie = choice.tie;
  options.include_self = choice.include_self;
  for (size_t t = 0; t < texts_.size(); ++t) {
    const at::Tensor q = exact_[t][layer].q.to(at::kFloat), k = exact_[t][layer].k.to(at::kFloat);
    const at::Tensor weights = attention_matrix(q, k, texts_[t].forest(choice.hierarchy), options).transpose(0, 1);
    const at::Tensor terms = weights * (weights.clamp_min(1e-30).log() - exact_logs(q, k));
    sum += terms.sum().item<double>();
    rows += static_cast<double>(q.size(0) * q.size(1));
  }
  return rows > 0 ? sum / rows : 0;
}

std::vector<LayerDrift> DriftReference::drift(const models::AttentionPlan& plan) const {
  std::vector<double> errors(plan.layers.size()), norms(plan.layers.size());
  for (size_t t = 0; t < texts_.size(); ++t) {
    const auto swapped = traced(model_, texts_[t], plan);
    for (size_t l = 0; l < swapped.size(); ++l) {
      const at::Tensor exact = exact_[t][l].rows.to(at::kFloat);
      errors[l] += (swapped[l].rows.to(at::kFloat) - exact).square().sum().item<double>();
      norms[l] += exact.square().sum().item<double>();
    }
  }
  std::vector<LayerDrift> drifts(plan.layers.size());
  for (size_t l = 0; l < drifts.size(); ++l) {
    drifts[l].output_error = norms[l] > 0 ? std::sqrt(errors[l] / norms[l]) : 0;
    drifts[l].divergence = plan.layers[l] ? divergence(l, *plan.layers[l]) : std::numeric_limits<double>::quiet_NaN();
  }
  return drifts;
}

}  // namespace ramify::compare
