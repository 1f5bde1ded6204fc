// What one batch of families does: softmax through an inner attention, entmax, or both where alpha differs.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include "ops/composed/composed.h"
#include "ops/composed/sparse.h"

namespace ramify::composed {
namespace {

FamilyStep softmax_step(const InnerAttention& inner, const FamilyAttentionInput& input, const at::Tensor& e) {
  const auto [a, g] = inner(input);
  // A query that sees nothing, and has nothing below it, keeps nothing and gives nothing (section 3).
  const at::Tensor nothing = e.isneginf().logical_and(g.isneginf());
  const at::Tensor below = e.masked_fill(nothing, 0), beside = g.masked_fill(nothing, 0);
  const at::Tensor t = at::logaddexp(below, beside);
  const at::Tensor stay = (below - t).exp().masked_fill(nothing, 0);
  const at::Tensor spread = (beside - t).exp().masked_fill(nothing, 0).unsqueeze(-1) * a;
  return {stay, spread, t.masked_fill(nothing, -INFINITY)};
}

FamilyStep sparse_step(const FamilyAttentionInput& input, const at::Tensor& e, const at::Tensor& alpha) {
  const at::Tensor entries = at::cat({e.unsqueeze(-1), family_scores(input)}, -1);
  const auto [weights, energy] = entmax(entries, entries.isneginf().logical_not(), alpha);
  const int64_t width = input.k.size(2);
  return {weights.select(-1, 0), weighted_values(weights.narrow(-1, 1, width), input), energy};
}

}  // namespace

FamilyAttentionInput family_input(const Setup& setup, size_t level, const BatchRows& batch, const at::Tensor& queries,
                                  const at::Tensor& own, const at::Tensor& level_k, const at::Tensor& level_v) {
  FamilyAttentionInput input;
  input.q = queries;
  input.k = batch.take_children(level_k);
  input.v = batch.take_children(level_v);
  input.log_size = batch.sizes(level_k.scalar_type()).log();
  input.own = own;
  input.mask = setup.mask;
  input.scale = setup.scale;
  input.finite_values = setup.finite_values;
  if (!setup.positions.empty()) {
    input.key_positions = batch.take_children(setup.positions[level]);
    input.query_positions = pick_children(input.key_positions, own);
  }
  return input;
}

FamilyStep family_step(const Setup& setup, const BatchRows& batch, const FamilyAttentionInput& input,
                       const at::Tensor& e) {
  if (!setup.alpha.defined()) return softmax_step(setup.inner, input, e);
  const at::Tensor alpha = setup.alpha.numel() == 1 ? setup.alpha.expand({batch.families()})
                                                    : setup.alpha.index_select(0, batch.family_depth());
  const at::Tensor soft = alpha.detach() < kSoftmaxAlpha;
  if (soft.all().item<bool>()) return softmax_step(setup.inner, input, e);
  const at::Tensor above_one = alpha.masked_fill(soft, 2).view({-1, 1, 1});
  const FamilyStep sparse = sparse_step(input, e, above_one);
  if (!soft.any().item<bool>()) return sparse;
  const FamilyStep softmax = softmax_step(setup.inner, input, e);
  const at::Tensor choice = soft.unsqueeze(-1);
  return {at::where(choice, softmax.stay, sparse.stay), at::where(choice.unsqueeze(-1), softmax.spread, sparse.spread),
          at::where(choice, softmax.energy, sparse.energy)};
}

}  // namespace ramify::composed
