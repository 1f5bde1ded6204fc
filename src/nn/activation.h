// The non-linearities that a config can name.
#pragma once

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include "ramify/nn/config.h"

namespace ramify::nn {

inline at::Tensor activate(const at::Tensor& rows, Activation activation) {
  return activation == Activation::gelu ? at::gelu(rows) : activation == Activation::relu ? at::relu(rows) : rows;
}

}  // namespace ramify::nn
