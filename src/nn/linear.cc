#include "nn/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <cmath>

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

}  // namespace ramify::nn
