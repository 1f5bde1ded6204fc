// The implementations behind the op, each with its gradient.
#pragma once

#include <string>

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

namespace fused_op {
// What keeps the fused kernels from this problem; empty: nothing.
std::string why_not(const Problem& problem);
// Sets `saved`; backward can use it where `save` was asked for.
AttentionOutput forward(const Problem& problem, bool save, at::Tensor& saved);
// Without `saved` forward runs again.
AttentionGradients backward(const Problem& problem, const at::Tensor& saved, const at::Tensor& grad_out,
                            const at::Tensor& grad_energy);
}  // namespace fused_op

// The fused kernels for tensors on a CUDA device; fused_op calls them.
namespace cuda_op {
std::string why_not(const Problem& problem);
AttentionOutput forward(const Problem& problem, bool save, at::Tensor& saved);
AttentionGradients backward(const Problem& problem, const at::Tensor& saved, const at::Tensor& grad_out,
                            const at::Tensor& grad_energy);
}  // namespace cuda_op

}  // namespace ramify
