#include "train/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/table_rows.h"

namespace ramify::train {

AdamW::AdamW(const models::NamedTensors& parameters, const AdamWOptions& options) : options_(options) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    const at::Tensor values = parameter.detach();
    slots_.push_back({.name = name,
                      .parameter = parameter,
                      .mean = at::zeros_like(values),
                      .square = at::zeros_like(values),
                      .steps = at::zeros({}, values.options().dtype(at::kFloat)),
                      .decayed = parameter.dim() > 1});
  }
}

void AdamW::step(double rate) {
  const at::NoGradGuard no_grad;
  step_sparse(rate);
  for (const bool decayed : {true, false}) {
    std::vector<at::Tensor> parameters, gradients, means, squares, steps;
    for (const Slot& slot : slots_) {
      if (slot.decayed != decayed || !slot.parameter.grad().defined() || slot.parameter.grad().is_sparse()) continue;
      parameters.push_back(slot.parameter);
      gradients.push_back(slot.parameter.grad());
      means.push_back(slot.mean);
      squares.push_back(slot.square);
      steps.push_back(slot.steps);
    }
    if (parameters.empty()) continue;
    for (at::Tensor& count : steps) count.add_(1);
    at::_fused_adamw_(parameters, gradients, means, squares, {}, steps, rate, options_.beta1, options_.beta2,
                      decayed ? options_.weight_decay : 0.0, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
}

void AdamW::step_sparse(double rate) {
  for (Slot& slot : slots_) {
    if (!slot.parameter.grad().defined() || !slot.parameter.grad().is_sparse()) continue;
    slot.steps.add_(1);
    adamw_rows_(slot.parameter, slot.mean, slot.square, in_row_order(slot.parameter.grad()),
                {.rate = rate,
                 .beta1 = options_.beta1,
                 .beta2 = options_.beta2,
                 .weight_decay = slot.decayed ? options_.weight_decay : 0.0,
                 .epsilon = options_.epsilon,
                 .step = slot.steps.item<double>()});
  }
}

void AdamW::clear_gradients() {
  for (Slot& slot : slots_) slot.parameter.mutable_grad().reset();
}

void AdamW::clip_gradients(double limit) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (Slot& slot : slots_) {
    at::Tensor& gradient = slot.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = in_row_order(gradient);
    gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient);
  }
  if (gradients.empty()) return;
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  at::_foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp_max(1));
}

models::NamedTensors AdamW::state() const {
  models::NamedTensors state;
  for (const Slot& slot : slots_) {
    state.emplace_back(slot.name + ".mean", slot.mean);
    state.emplace_back(slot.name + ".square", slot.square);
    state.emplace_back(slot.name + ".steps", slot.steps);
  }
  return state;
}

}  // namespace ramify::train
