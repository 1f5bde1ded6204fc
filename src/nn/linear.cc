#include "nn/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <cmath>

#include "nn/activation.h"
#include "ops/bias_gelu.h"

namespace ramify::nn {

Linear::Linear(int64_t in, int64_t out, Bias bias, double deviation) {
  const double bound = deviation * std::sqrt(3.0), bias_bound = 1 / std::sqrt(static_cast<double>(in));
  register_parameter("weight", at::empty({out, in}).uniform_(-bound, bound));
  if (bias == Bias::yes) register_parameter("bias", at::empty({out}).uniform_(-bias_bound, bias_bound));
}

Linear::Linear(int64_t in, int64_t out) : Linear(in, out, Bias::yes, 1 / std::sqrt(static_cast<double>(in))) {}

at::ScalarType Linear::type(at::ScalarType dtype) const {
  return dtype == at::ScalarType::Undefined ? parameter("weight").scalar_type() : dtype;
}

at::Tensor Linear::forward(const at::Tensor& rows, at::ScalarType dtype) const {
  dtype = type(dtype);
  const at::Tensor* bias = parameters_.find("bias");
  return at::linear(rows.to(dtype), parameter("weight").to(dtype),
                    bias ? std::optional(bias->to(dtype)) : std::nullopt);
}

at::Tensor Linear::forward(const at::Tensor& rows, Activation activation, at::ScalarType dtype) const {
  const at::Tensor& weight = parameter("weight");
  const at::Tensor* bias = parameters_.find("bias");
  const bool is_fused = activation == Activation::gelu && bias && has_bias_gelu(rows) && has_bias_gelu(weight) &&
                        type(dtype) == at::kFloat && !at::autocast::is_autocast_enabled(at::kCPU);
  return is_fused ? bias_gelu(at::mm(rows, weight.t()), *bias) : activate(forward(rows, dtype), activation);
}

}  // namespace ramify::nn
