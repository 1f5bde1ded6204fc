#include "nn/projections.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace ramify::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Products of the same rows with several matrices. Their gradients by the rows are added up by the matrix products
// themselves, where torch would take a pass over the rows for each.
struct Products : Function<Products> {
  static variable_list forward(AutogradContext* context, const at::Tensor& rows, at::TensorList weights) {
    variable_list saved = {rows}, products;
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(std::move(saved));
    for (const at::Tensor& weight : weights) products.push_back(at::mm(rows, weight.t()));
    return products;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    variable_list results(saved.size());
    for (size_t p = 0; p < gradients.size(); ++p) {
      const at::Tensor &gradient = gradients[p], &weight = saved[p + 1];
      if (context->needs_input_grad(p + 1)) results[p + 1] = gradient.t().mm(saved[0]);
      if (!context->needs_input_grad(0)) continue;
      if (p == 0) {
        results[0] = gradient.mm(weight);
      } else {
        results[0].addmm_(gradient, weight);
      }
    }
    return results;
  }
};

}  // namespace

Projections::Projections(int64_t in, int64_t out, Attention attention) : has_keys_(attention != Attention::none) {
  const double bound = std::sqrt(3 / static_cast<double>(in));
  for (const char* part : {"query", "key", "value"}) {
    if (part != std::string("key") || has_keys_) {
      register_parameter(part, at::empty({out, in}).uniform_(-bound, bound));
    }
  }
}

std::vector<at::Tensor> Projections::forward(const at::Tensor& rows, at::ScalarType dtype) const {
  const auto device = rows.device().type();
  if (at::autocast::is_autocast_enabled(device)) {
    dtype = at::autocast::get_autocast_dtype(device);
  } else if (dtype == at::ScalarType::Undefined) {
    dtype = parameter("query").scalar_type();
  }
  std::vector<at::Tensor> weights = {parameter("query").to(dtype), parameter("value").to(dtype)};
  if (has_keys_) weights.push_back(parameter("key").to(dtype));
  return Products::apply(rows.to(dtype), at::TensorList(weights));
}

}  // namespace ramify::nn
