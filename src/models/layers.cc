#include "models/layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

#include "ops/table_rows.h"
#include "ramify/attention.h"

namespace ramify::models {
namespace {

double seconds_now(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

at::Tensor mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionInput& input) {
  if (!input.choice || input.choice->hierarchy.levels.empty()) {
    const auto window = input.choice ? std::optional(input.choice->window) : std::nullopt;
    return exact_attention(q, k, v, input.texts.rows(), {input.mask, input.dropout, window});
  }
  AttentionOptions options;
  options.tie = input.choice->tie;
  options.include_self = input.choice->include_self;
  options.window = input.choice->window;
  if (input.mask == Mask::causal) options.causal = options.tie == Tie::none ? Causal::block : Causal::prefix;
  return attention(q, k, v, input.texts.forest(input.choice->hierarchy), options);
}

}  // namespace

LayerNorm::LayerNorm(int64_t width, double epsilon) : epsilon_(epsilon) {
  register_parameter("weight", at::ones({width}));
  register_parameter("bias", at::zeros({width}));
}

at::Tensor LayerNorm::forward(const at::Tensor& rows) const {
  const at::Tensor& weight = parameter("weight");
  return at::layer_norm(rows, weight.sizes(), weight, parameter("bias"), epsilon_);
}

RmsNorm::RmsNorm(int64_t width, double epsilon) : epsilon_(epsilon) {
  register_parameter("weight", at::ones({width}));
}

at::Tensor RmsNorm::forward(const at::Tensor& rows) const {
  const at::Tensor wide = rows.scalar_type() == at::kDouble ? rows : rows.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon_);
  return (wide * scale).to(rows.scalar_type()) * parameter("weight");
}

Table::Table(int64_t rows, int64_t width) {
  register_parameter("weight", at::empty({rows, width}).normal_());
}

at::Tensor Table::forward(const at::Tensor& ids) const {
  return table_rows(weight(), ids, gradient_);
}

bool Table::has_row_gradient() const {
  return ramify::has_row_gradient(weight(), gradient_);
}

at::Tensor activate(const at::Tensor& rows, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu(rows);
    case Activation::gelu_tanh:
      return at::gelu(rows, "tanh");
    case Activation::relu:
      return at::relu(rows);
    case Activation::silu:
      break;
  }
  return at::silu(rows);
}

at::Tensor mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionInput& input,
               Trace* trace) {
  const bool timed = trace && trace->time_attention;
  if (timed && input.choice && !input.choice->hierarchy.levels.empty())
    input.texts.forest(input.choice->hierarchy);  // made once for all layers
  const double began = timed ? seconds_now(q.device()) : 0;
  const at::Tensor out = mixed(q, k, v, input);
  if (timed) trace->attention_seconds += seconds_now(q.device()) - began;
  return out.reshape({out.size(0), out.size(1) * out.size(2)});
}

void initialize(torch::nn::Module& module, double deviation) {
  const at::NoGradGuard no_grad;
  for (auto& entry : module.named_parameters()) {
    if (entry.value().dim() > 1) {
      entry.value().normal_(0, deviation);
    } else {
      entry.value().fill_(entry.key().ends_with("norm.weight") ? 1 : 0);
    }
  }
}

}  // namespace ramify::models
