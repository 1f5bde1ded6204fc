#include "ops/composed/sparse.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace ramify::composed {

at::Tensor entmax_base(const at::Tensor& scores, const at::Tensor& valid, const at::Tensor& alpha,
                       const at::Tensor& tau) {
  // Invalid scores may be -inf; they are cut out before they meet a product, so that no gradient sees 0·inf.
  const at::Tensor invalid = valid.logical_not();
  return ((alpha - 1) * scores.masked_fill(invalid, 0) - tau).clamp_min(0).masked_fill(invalid, 0);
}

MassAndSlope mass_and_slope(const at::Tensor& base, const at::Tensor& alpha) {
  const at::Tensor power = 1 / (alpha - 1);
  const at::Tensor fixed = base.detach(), fixed_power = power.detach();
  const at::Tensor slope = (fixed_power * fixed.pow(fixed_power - 1)).masked_fill(fixed == 0, 0);
  return {base.pow(power).sum(-1), slope.sum(-1)};
}

at::Tensor solve_threshold(at::Tensor tau, const std::function<MassAndSlope(const at::Tensor&)>& evaluate) {
  // The mass is convex and falls with tau, so Newton's method from the left never oversteps. It needs a
  // handful of steps; the bound only guards against inputs that are not numbers.
  constexpr int kMaxSteps = 100;
  const double tolerance = tau.scalar_type() == at::kDouble ? 1e-13 : 1e-6;
  for (int step = 0; step < kMaxSteps; ++step) {
    const MassAndSlope here = evaluate(tau);
    const at::Tensor excess = here.mass - 1;
    // A row that has converged stays as it is, so that it does not depend on how long the others take.
    const at::Tensor next =
        tau + excess.masked_fill(excess <= tolerance, 0) / here.slope.masked_fill(here.slope == 0, 1);
    if ((next == tau).logical_or(next.isnan()).all().item<bool>()) break;
    tau = next;
  }
  return tau;
}

at::Tensor differentiable_threshold(const at::Tensor& solved, const MassAndSlope& at_solved) {
  const at::Tensor slope = at_solved.slope.masked_fill(at_solved.slope == 0, 1);
  return solved + ((at_solved.mass - 1) / slope).masked_fill(at_solved.slope == 0, 0);
}

at::Tensor energy_terms(const at::Tensor& scores, const at::Tensor& valid, const at::Tensor& weights,
                        const at::Tensor& alpha) {
  const at::Tensor p = weights.detach();
  const at::Tensor entropy = (p - p.pow(alpha)) / (alpha * (alpha - 1));
  return p * scores.masked_fill(valid.logical_not(), 0) + entropy;
}

SparseWeights entmax(const at::Tensor& scores, const at::Tensor& valid, const at::Tensor& alpha) {
  at::Tensor solved;
  {
    at::NoGradGuard no_grad;
    const at::Tensor shifted = ((alpha - 1) * scores).masked_fill(valid.logical_not(), -INFINITY);
    solved = solve_threshold(shifted.amax(-1) - 1, [&](const at::Tensor& tau) {
      return mass_and_slope(entmax_base(scores, valid, alpha, tau.unsqueeze(-1)), alpha);
    });
  }
  const MassAndSlope at_solved = mass_and_slope(entmax_base(scores, valid, alpha, solved.unsqueeze(-1)), alpha);
  const at::Tensor tau = differentiable_threshold(solved, at_solved);
  const at::Tensor weights = entmax_base(scores, valid, alpha, tau.unsqueeze(-1)).pow(1 / (alpha - 1));
  return {weights, energy_terms(scores, valid, weights, alpha).sum(-1)};
}

}  // namespace ramify::composed
