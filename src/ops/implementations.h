// The implementations behind the op, each with its gradient.
#pragma once

#include "ops/problem.h"

namespace ramify {

namespace reference_op {
AttentionOutput forward(const Problem& problem);
AttentionGradients backward(const Problem& problem, const at::Tensor& grad_out, const at::Tensor& grad_energy);
}  // namespace reference_op

namespace composed_op {
AttentionOutput forward(const Problem& problem);
// Runs the forward pass again under autograd: nothing but the inputs is kept between the two.
AttentionGradients backward(const Problem& problem, const at::Tensor& grad_out, const at::Tensor& grad_energy);
}  // namespace composed_op

}  // namespace ramify
