#include "ops/bias_gelu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu/bias_gelu.h"
#include "ops/torch_threads.h"
#include "ops/warm_memory.h"

namespace ramify {
namespace {

cpu::BiasGeluParams gelu_params(const at::Tensor& x, const at::Tensor& bias) {
  return {x.size(0), x.size(1), x.const_data_ptr<float>(), bias.const_data_ptr<float>()};
}

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows, const at::Tensor& bias) {
    context->save_for_backward({rows, bias});
    const at::Tensor x = rows.contiguous(), b = bias.contiguous(), y = warm_empty(x.sizes(), at::kFloat);
    cpu::bias_gelu_forward(gelu_params(x, b), y.mutable_data_ptr<float>(), torch_threads());
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) {  // by operations that have derivatives themselves
      const at::Tensor gradient = at::gelu_backward(gradients[0], saved[0] + saved[1]);
      return {gradient, gradient.sum(0)};
    }
    const at::Tensor x = saved[0].contiguous(), bias = saved[1].contiguous(), gradient = gradients[0].contiguous();
    const cpu::BiasGeluParams params = gelu_params(x, bias);
    const at::Tensor grad_x = warm_empty(x.sizes(), at::kFloat), grad_bias = at::empty({x.size(1)}, at::kFloat);
    const at::Tensor workspace = at::empty({cpu::bias_gelu_workspace(params)}, at::kFloat);
    cpu::bias_gelu_backward(
        params,
        {gradient.const_data_ptr<float>(), grad_x.mutable_data_ptr<float>(), grad_bias.mutable_data_ptr<float>()},
        workspace.mutable_data_ptr<float>(), torch_threads());
    return {grad_x, grad_bias};
  }
};

}  // namespace

bool has_bias_gelu(const at::Tensor& rows) {
  return rows.is_cpu() && rows.scalar_type() == at::kFloat && rows.dim() == 2 && cpu::is_supported();
}

at::Tensor bias_gelu(const at::Tensor& rows, const at::Tensor& bias) {
  return BiasGelu::apply(rows, bias);
}

}  // namespace ramify
