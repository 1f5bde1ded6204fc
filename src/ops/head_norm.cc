#include "ops/head_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu/row_norm.h"
#include "ops/torch_rows.h"
#include "ops/torch_threads.h"
#include "ops/warm_memory.h"

namespace ramify {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kNormEpsilon = 1e-5;

bool has_fused_norm(const at::Tensor& rows) {
  const at::ScalarType dtype = rows.scalar_type();
  return rows.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf) && rows.dim() == 3 &&
         rows.size(2) > 0 && rows.size(2) <= cpu::kMaxDim && cpu::is_supported();
}

at::Tensor as_floats(const at::Tensor& vector) {
  return vector.to(at::kFloat).contiguous();
}

cpu::NormParams norm_params(const at::Tensor& x, const at::Tensor& gain) {
  return {.storage = storage_of(x.scalar_type()),
          .rows = x.size(0),
          .heads = x.size(1),
          .dim = x.size(2),
          .x = rows_of(x),
          .gain = gain.const_data_ptr<float>(),
          .epsilon = static_cast<float>(kNormEpsilon)};
}

// By operations that have derivatives themselves.
variable_list differentiable_backward(const variable_list& saved, const at::Tensor& gradient) {
  const at::Tensor &rows = saved[0], gain = saved[1].to(rows.scalar_type()), bias = saved[2].to(rows.scalar_type());
  const at::IntArrayRef shape = rows.sizes().slice(2);
  const auto [out, mean, deviation] = at::native_layer_norm(rows, shape, gain, bias, kNormEpsilon);
  const auto [x, g, b] =
      at::native_layer_norm_backward(gradient, rows, shape, mean, deviation, gain, bias, {true, true, true});
  return {x, g.to(saved[1].scalar_type()), b.to(saved[2].scalar_type())};
}

variable_list fused_backward(const variable_list& saved, const at::Tensor& gradient, const at::Tensor& more) {
  const at::Tensor x = with_dense_rows(saved[0]), gain = as_floats(saved[1]);
  const at::Tensor first = with_dense_rows(gradient), second = more.defined() ? with_dense_rows(more) : at::Tensor();
  const cpu::NormParams params = norm_params(x, gain);
  const at::Tensor grad_x = warm_empty(x.sizes(), x.scalar_type());
  const at::Tensor grad_gain = at::empty({params.dim}, at::kFloat), grad_bias = at::empty({params.dim}, at::kFloat);
  const at::Tensor workspace = warm_empty({cpu::norm_workspace(params)}, at::kFloat);
  cpu::NormBackward backward{.grad_y = rows_of(first),
                             .grad_x = rows_of(grad_x),
                             .grad_gain = grad_gain.mutable_data_ptr<float>(),
                             .grad_bias = grad_bias.mutable_data_ptr<float>()};
  if (second.defined()) backward.more_grad_y = rows_of(second);
  cpu::norm_backward(params, backward, workspace.mutable_data_ptr<float>(), torch_threads());
  return {grad_x, grad_gain.to(saved[1].scalar_type()), grad_bias.to(saved[2].scalar_type())};
}

struct HeadNorm : torch::autograd::Function<HeadNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& gain,
                               const at::Tensor& bias, int64_t users) {
    context->save_for_backward({rows, gain, bias});
    context->set_materialize_grads(false);
    const at::Tensor x = with_dense_rows(rows), gains = as_floats(gain), biases = as_floats(bias);
    cpu::NormParams params = norm_params(x, gains);
    params.bias = biases.const_data_ptr<float>();
    const at::Tensor y = warm_empty(x.sizes(), x.scalar_type());
    cpu::norm_forward(params, rows_of(y), torch_threads());
    if (users == 1) return {y};
    return {y, y.variable_data()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    std::vector<at::Tensor> given;
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined()) given.push_back(gradient);
    }
    variable_list results(4);
    if (given.empty()) return results;
    const bool again = at::GradMode::is_enabled();
    variable_list found = again ? differentiable_backward(saved, given.size() == 1 ? given[0] : given[0] + given[1])
                                : fused_backward(saved, given[0], given.size() == 1 ? at::Tensor() : given[1]);
    std::move(found.begin(), found.end(), results.begin());
    return results;
  }
};

at::Tensor torch_norm(const at::Tensor& rows, const at::Tensor& gain, const at::Tensor& bias) {
  const at::ScalarType dtype = rows.scalar_type();
  return at::layer_norm(rows, rows.sizes().slice(rows.dim() - 1), gain.to(dtype), bias.to(dtype), kNormEpsilon);
}

}  // namespace

at::Tensor head_norm(const at::Tensor& rows, const at::Tensor& gain, const at::Tensor& bias) {
  if (!has_fused_norm(rows)) return torch_norm(rows, gain, bias);
  return HeadNorm::apply(rows, gain, bias, int64_t{1})[0];
}

std::array<at::Tensor, 2> head_norm_for_two(const at::Tensor& rows, const at::Tensor& gain, const at::Tensor& bias) {
  if (!has_fused_norm(rows)) {
    const at::Tensor normal = torch_norm(rows, gain, bias);
    return {normal, normal};
  }
  const variable_list both = HeadNorm::apply(rows, gain, bias, int64_t{2});
  return {both[0], both[1]};
}

}  // namespace ramify
