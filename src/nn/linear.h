// A matrix product with optional bias.
#pragma once

#include "ramify/nn/config.h"
#include "ramify/nn/module.h"

namespace ramify::nn {

enum class Bias { no, yes };

class Linear : public Module {
 public:
  // Weights uniform with the given standard deviation a weight, the bias with that of 1/sqrt(3·in).
  Linear(int64_t in, int64_t out, Bias bias, double deviation);
  // Weights that keep the variance of their input.
  Linear(int64_t in, int64_t out);

  // [n, in] -> [n, out], computed in `dtype`; Undefined: in that of the weights.
  at::Tensor forward(const at::Tensor& rows, at::ScalarType dtype = at::ScalarType::Undefined) const;

  // The same and then the non-linearity, in as few passes as there are.
  at::Tensor forward(const at::Tensor& rows, Activation activation,
                     at::ScalarType dtype = at::ScalarType::Undefined) const;

  at::ScalarType type(at::ScalarType dtype) const;  // in which it computes
  const at::Tensor& weight() const { return parameter("weight"); }
};

}  // namespace ramify::nn
