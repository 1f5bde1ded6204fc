// Untied queries with alpha above 1 (docs/algorithm.md, sections 6 and 7): one entmax over everything a leaf
// sees. Its entries lie scattered over levels and batches, and stay there; only sums a leaf are brought
// together.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "ops/composed/composed.h"
#include "ops/composed/sparse.h"

namespace ramify::composed {
namespace {

// The entries that one batch of families gives its leaves.
struct Entries {
  at::Tensor scores;  // [H, F, Q, B]
  at::Tensor valid;   // likewise, bool
  FamilyAttentionInput input;
  Destination leaves;
  BatchRows batch;
};

// All entries of all leaves. A leaf's own is separate: [H, T].
struct Scattered {
  std::vector<Entries> families;
  at::Tensor self_score, self_valid;
};

Scattered collect(const Setup& setup) {
  Scattered all = {{}, setup.self_score, setup.self_score.isneginf().logical_not()};
  std::vector<at::Tensor> k_parts, v_parts;
  for (size_t l = setup.levels.size(); l-- > 1;) {
    const Level& level = setup.levels[l];
    const at::Tensor k = level.rows(setup.k[l], std::exchange(k_parts, {}));
    const at::Tensor v = level.rows(setup.v[l], std::exchange(v_parts, {}));
    for (const BatchRows& batch : level.batches()) {
      const FamilyAttentionInput input =
          family_input(setup, l, batch, batch.take_queries(setup.leaf_q), batch.child_of_leaf(), k, v);
      const at::Tensor scores = family_scores(input);
      all.families.push_back(
          {scores, scores.isneginf().logical_not(), input, batch.queries(setup.num_leaves()), batch});
      const at::Tensor sizes = batch.sizes(k.scalar_type());
      k_parts.push_back(weighted_mean(input.k, sizes));
      v_parts.push_back(weighted_mean(input.v, sizes));
    }
  }
  return all;
}

// Adds [H, F, Q, ...] of a batch to [H, T, ...] of its leaves.
at::Tensor add_to_leaves(const at::Tensor& leaves, const Entries& entries, const at::Tensor& rows) {
  const at::Tensor flat = rows.flatten(1, 2);
  if (entries.leaves.begin >= 0) {
    const int64_t begin = entries.leaves.begin, count = entries.leaves.count, end = begin + count;
    return at::cat({leaves.narrow(1, 0, begin), leaves.narrow(1, begin, count) + flat,
                    leaves.narrow(1, end, leaves.size(1) - end)},
                   1);
  }
  const at::Tensor dropped = at::zeros_like(leaves.narrow(1, 0, 1));  // padding lands behind the last leaf
  return at::cat({leaves, dropped}, 1).index_add(1, entries.leaves.index, flat).narrow(1, 0, leaves.size(1));
}

at::Tensor largest_score(const Scattered& all) {
  at::Tensor largest = all.self_score.detach();
  for (const Entries& entries : all.families) {
    RowOrder order(largest.size(1));
    order.add(entries.leaves);
    const at::Tensor before = entries.batch.take_queries(largest);
    largest = order.restore({at::maximum(before, entries.scores.detach().amax(-1)).flatten(1, 2)}, largest);
  }
  return largest;
}

MassAndSlope mass_of_leaves(const Scattered& all, const at::Tensor& alpha, const at::Tensor& tau) {
  const at::Tensor own = entmax_base(all.self_score, all.self_valid, alpha, tau);
  MassAndSlope total = mass_and_slope(own.unsqueeze(-1), alpha);
  for (const Entries& entries : all.families) {
    const at::Tensor family_tau = entries.batch.take_queries(tau).unsqueeze(-1);
    const MassAndSlope part = mass_and_slope(entmax_base(entries.scores, entries.valid, alpha, family_tau), alpha);
    total.mass = add_to_leaves(total.mass, entries, part.mass);
    total.slope = add_to_leaves(total.slope, entries, part.slope);
  }
  return total;
}

}  // namespace

HeadsFirstOutput untied_sparse_attention(const Setup& setup) {
  const at::Tensor& alpha = setup.alpha;  // [1]
  const Scattered all = collect(setup);
  const at::Tensor largest = largest_score(all);
  const at::Tensor nothing = largest.isneginf();  // the only leaf of a tree, without itself
  at::Tensor solved;
  {
    at::NoGradGuard no_grad;
    solved = solve_threshold((alpha - 1) * largest.masked_fill(nothing, 0) - 1,
                             [&](const at::Tensor& tau) { return mass_of_leaves(all, alpha, tau); });
  }
  const at::Tensor tau = differentiable_threshold(solved, mass_of_leaves(all, alpha, solved));

  const at::Tensor power = 1 / (alpha - 1);
  const at::Tensor self_weight = entmax_base(all.self_score, all.self_valid, alpha, tau).pow(power);
  HeadsFirstOutput result;
  result.out = self_weight.unsqueeze(-1) * setup.self_value;
  result.energy = energy_terms(all.self_score, all.self_valid, self_weight, alpha);
  for (const Entries& entries : all.families) {
    const at::Tensor family_tau = entries.batch.take_queries(tau).unsqueeze(-1);
    const at::Tensor weights = entmax_base(entries.scores, entries.valid, alpha, family_tau).pow(power);
    result.out = add_to_leaves(result.out, entries, weighted_values(weights, entries.input));
    const at::Tensor terms = energy_terms(entries.scores, entries.valid, weights, alpha).sum(-1);
    result.energy = add_to_leaves(result.energy, entries, terms);
  }
  result.energy = result.energy.masked_fill(nothing, -INFINITY);
  return result;
}

}  // namespace ramify::composed
