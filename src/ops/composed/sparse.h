// alpha-entmax (docs/algorithm.md, section 7) on tensors, differentiable in the scores and in alpha.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace ramify::composed {

struct SparseWeights {
  at::Tensor weights;  // exact zeros outside the support
  at::Tensor energy;   // p·z + Tsallis entropy, without the last dimension
};

// Over the last dimension of `scores`; entries outside `valid` (bool) take no part, whatever they hold.
// `alpha` (above 1) broadcasts against scores.
SparseWeights entmax(const at::Tensor& scores, const at::Tensor& valid, const at::Tensor& alpha);

// The pieces of entmax, for entries that do not lie in one tensor.

// max((alpha-1)·z - tau, 0) where valid, else 0. The weights are its power 1/(alpha-1).
at::Tensor entmax_base(const at::Tensor& scores, const at::Tensor& valid, const at::Tensor& alpha,
                       const at::Tensor& tau);

// Over the last dimension: the sum of base^(1/(alpha-1)), and its derivative by -tau.
struct MassAndSlope {
  at::Tensor mass, slope;
};
MassAndSlope mass_and_slope(const at::Tensor& base, const at::Tensor& alpha);

// The tau at which `evaluate(tau).mass` is 1, from a tau at or below it.
at::Tensor solve_threshold(at::Tensor tau, const std::function<MassAndSlope(const at::Tensor&)>& evaluate);

// tau as a function of scores and alpha: the solved number, corrected by one differentiable Newton step.
at::Tensor differentiable_threshold(const at::Tensor& solved, const MassAndSlope& at_solved);

// Terms of the energy whose sum is t; differentiable with dt/dz = p (the maximum's other derivatives vanish).
at::Tensor energy_terms(const at::Tensor& scores, const at::Tensor& valid, const at::Tensor& weights,
                        const at::Tensor& alpha);

}  // namespace ramify::composed
