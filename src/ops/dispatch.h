// Which implementation runs a call: one decision, in one place.
#pragma once

#include "ops/problem.h"

namespace ramify {

// Makes the plan where the caller had none, and checks that the forest is about these leaves and on their device.
void complete(Problem& problem);

// Runs the requested implementation, or the fastest that supports the problem. RAMIFY_LOG=dispatch in the
// environment prints each choice to stderr.
//
// `saved` is what backward can use of forward, without elements where that is nothing: only the fused kernels save, and
// only for a caller that brings the plan, so that shapes are known before any work (attention_op.cc).
struct ForwardResult {
  AttentionOutput output;
  at::Tensor saved;
};
ForwardResult run_forward(Problem problem, Implementation requested, bool save);
AttentionGradients run_backward(Problem problem, Implementation requested, const at::Tensor& saved,
                                const at::Tensor& grad_out, const at::Tensor& grad_energy);

}  // namespace ramify
