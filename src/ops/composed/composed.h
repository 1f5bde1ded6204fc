// Hierarchical attention from ordinary torch operations, level by level: any device, any mode, autograd.
//
//   composed.cc          entry: heads first, compute dtype, and which of the three forms below runs
//   block_attention.cc   tied queries: the paper's two passes
//   leaf_attention.cc    every leaf has its own query: untied, and causal=prefix
//   window_attention.cc  untied with an exact window: the band, then leaf_attention from its edges
//   untied_sparse.cc     untied with alpha above 1: one entmax over all that a leaf sees
//   family_step.cc       what one batch of families does: softmax through an inner attention, or entmax
//   rows.cc              gathering families from levels and putting results back
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "ops/composed/rows.h"
#include "ops/problem.h"

namespace ramify::composed {

// A problem with heads first, so that a family is a matrix: rows [H, n, ...].
struct Setup {
  Setup(const PlanView& plan_view, std::vector<Level> all_levels, const InnerAttention& inner_attention)
      : plan(plan_view), levels(std::move(all_levels)), inner(inner_attention) {}

  const PlanView& plan;
  std::vector<Level> levels;  // from the roots; so are the vectors below
  const InnerAttention& inner;
  std::vector<at::Tensor> q, k, v;    // the leaves of each level; grouped keys repeated
  std::vector<at::Tensor> positions;  // [H, n, dp] of each level's nodes towards siblings; empty without positions
  at::Tensor leaf_q;                  // [H, T, d]: of all leaves in order
  at::Tensor self_score;              // [H, T]: -inf without include_self
  at::Tensor self_value;              // [H, T, dv]: v, or 0 without include_self
  at::Tensor alpha;                   // [1] or [levels]; undefined: softmax
  SiblingMask mask = SiblingMask::others;
  double scale = 1;
  bool include_self = false;
  bool finite_values = true;  // no NaN or infinity among the values

  int64_t num_leaves() const { return leaf_q.size(1); }
};

// Both as [H, ...]: out [H, T, dv]; energy [H, roots], or [H, T] where every leaf has its own.
struct HeadsFirstOutput {
  at::Tensor out, energy;
};

HeadsFirstOutput block_attention(const Setup& setup);

enum class LeafQuery {
  own,          // tie=none: the leaf's query, at every level
  prefix_mean,  // causal=prefix: the mean query of the leaves so far below its ancestor
};
HeadsFirstOutput leaf_attention(const Setup& setup, LeafQuery query);

// Untied; `window` leaves on the left of each, and on the right unless setup.mask is left, are seen one by one.
HeadsFirstOutput window_attention(const Setup& setup, int64_t window);

HeadsFirstOutput untied_sparse_attention(const Setup& setup);

// Children and queries of one batch, ready for attention; `queries` [H, F, Q, d].
FamilyAttentionInput family_input(const Setup& setup, size_t level, const BatchRows& batch, const at::Tensor& queries,
                                  const at::Tensor& own, const at::Tensor& level_k, const at::Tensor& level_v);

// What each query does with its attention (docs/algorithm.md, section 2 and 7): the mass m it keeps for what
// is below it, the sum w·a that it spreads over siblings, and t.
struct FamilyStep {
  at::Tensor stay;    // [H, F, Q]
  at::Tensor spread;  // [H, F, Q, dv]
  at::Tensor energy;  // [H, F, Q]
};
FamilyStep family_step(const Setup& setup, const BatchRows& batch, const FamilyAttentionInput& input,
                       const at::Tensor& e);

AttentionOutput attention(const Problem& problem, const InnerAttention& inner);

}  // namespace ramify::composed
