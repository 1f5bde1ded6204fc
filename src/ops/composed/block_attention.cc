// Tied queries (docs/algorithm.md, section 2): the paper's two passes, one level of all trees at a time.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "ops/composed/composed.h"

namespace ramify::composed {
namespace {

struct Upward {
  std::vector<std::vector<FamilyStep>> steps;  // by level and batch; the queries are the children
  at::Tensor root_energy;                      // [H, roots]
};

// Bottom-up: means of q, k, v and the energy e of every node from its children.
Upward upward(const Setup& setup) {
  Upward result;
  result.steps.resize(setup.levels.size());
  const std::vector<at::Tensor> leaf_e = leaves_by_level(setup.self_score, setup.plan);
  std::vector<at::Tensor> q_parts, k_parts, v_parts, e_parts;
  for (size_t l = setup.levels.size(); l-- > 0;) {
    const Level& level = setup.levels[l];
    const at::Tensor q = level.rows(setup.q[l], std::exchange(q_parts, {}));
    const at::Tensor k = level.rows(setup.k[l], std::exchange(k_parts, {}));
    const at::Tensor v = level.rows(setup.v[l], std::exchange(v_parts, {}));
    const at::Tensor e = level.rows(leaf_e[l], std::exchange(e_parts, {}));
    if (l == 0) result.root_energy = e;
    for (const BatchRows& batch : level.batches()) {
      const at::Tensor children_q = batch.take_children(q);
      const FamilyAttentionInput input = family_input(setup, l, batch, children_q, batch.child_numbers(), k, v);
      const FamilyStep step = family_step(setup, batch, input, batch.take_children(e));
      const at::Tensor sizes = batch.sizes(q.scalar_type());
      q_parts.push_back(weighted_mean(children_q, sizes));
      k_parts.push_back(weighted_mean(input.k, sizes));
      v_parts.push_back(weighted_mean(input.v, sizes));
      e_parts.push_back(weighted_mean(step.energy, sizes));
      result.steps[l].push_back(step);
    }
  }
  return result;
}

// Top-down: what each node has gathered from the siblings of its ancestors and its own (y), and the mass that
// is left for what lies below it (pi).
at::Tensor downward(const Setup& setup, const std::vector<std::vector<FamilyStep>>& steps) {
  const int64_t heads = setup.leaf_q.size(0), value_dim = setup.self_value.size(2);
  const std::vector<at::Tensor> self_value = leaves_by_level(setup.self_value, setup.plan);
  RowOrder leaf_order(setup.num_leaves());
  std::vector<at::Tensor> leaf_parts;
  at::Tensor y, pi;
  for (size_t l = 0; l < setup.levels.size(); ++l) {
    const Level& level = setup.levels[l];
    const int64_t num_nodes = level.shape().num_nodes;
    if (l == 0) {
      y = at::zeros({heads, num_nodes, value_dim}, setup.leaf_q.options());
      pi = at::ones({heads, num_nodes}, setup.leaf_q.options());
    } else {
      RowOrder order(num_nodes);
      std::vector<at::Tensor> y_parts, pi_parts;
      for (size_t b = 0; b < level.batches().size(); ++b) {
        const BatchRows& batch = level.batches()[b];
        const FamilyStep& step = steps[l][b];
        const at::Tensor parent_y = batch.take_parents(y).unsqueeze(2);
        const at::Tensor parent_pi = batch.take_parents(pi).unsqueeze(2);
        y_parts.push_back((parent_y + parent_pi.unsqueeze(3) * step.spread).flatten(1, 2));
        pi_parts.push_back((parent_pi * step.stay).flatten(1, 2));
        order.add(batch.children(num_nodes));
      }
      y = order.restore(std::move(y_parts));
      pi = order.restore(std::move(pi_parts));
    }
    if (level.shape().num_leaves == 0) continue;
    const at::Tensor own = level.take_leaves(pi).unsqueeze(2) * self_value[l];
    leaf_parts.push_back(level.take_leaves(y) + own);
    leaf_order.add(level.leaves(setup.num_leaves()));
  }
  if (leaf_parts.empty()) return at::zeros_like(setup.self_value);
  return leaf_order.restore(std::move(leaf_parts));
}

}  // namespace

HeadsFirstOutput block_attention(const Setup& setup) {
  const Upward up = upward(setup);
  return {downward(setup, up.steps),
          up.root_energy.defined() ? up.root_energy : at::empty({setup.leaf_q.size(0), 0}, setup.leaf_q.options())};
}

}  // namespace ramify::composed
