// Which implementation runs a call: one decision, in one place.
#pragma once

#include "ops/problem.h"

namespace ramify {

// Makes the plan where the caller had none, and checks that the forest is about these leaves and on their device.
void complete(Problem& problem);

// Runs the requested implementation, or the fastest that supports the problem. RAMIFY_LOG=dispatch in the
// environment prints each choice to stderr.
AttentionOutput run_forward(Problem problem, Implementation requested);
AttentionGradients run_backward(Problem problem, Implementation requested, const at::Tensor& grad_out,
                                const at::Tensor& grad_energy);

}  // namespace ramify
