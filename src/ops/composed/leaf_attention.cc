// Every leaf has its own query at every level: untied attention (docs/algorithm.md, section 6) and
// causal=prefix (section 5).
//
// Both climb from the leaves: at each level a leaf looks at the siblings of its ancestor there, and what it
// has gathered below counts as one more entry of the same softmax. So one pass is enough.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <utility>

#include "ops/composed/composed.h"

namespace ramify::composed {
namespace {

// What a leaf has when it looks out from its ancestor on the present level.
struct Climb {
  at::Tensor gathered;   // [H, T, dv] its output, were all of its mass to stay below that ancestor
  at::Tensor e;          // [H, T]
  at::Tensor query_sum;  // [H, T, d] causal=prefix: queries of the leaves up to it below that ancestor
  at::Tensor count;      // [1, T]    and how many they are
};

// The climbs of a level's leaves, one part a batch.
struct ClimbParts {
  std::vector<at::Tensor> gathered, e, query_sum, count;
};

// causal=prefix: from the leaf's ancestor on this level to the ancestor's parent. Complete children to the
// left join the sums; their t is the one at their last leaf.
void widen_prefix(const BatchRows& batch, const at::Tensor& own, const at::Tensor& child_q_sums, const at::Tensor& t,
                  const at::Tensor& query_sum, const at::Tensor& count, ClimbParts& parts) {
  const at::Tensor sizes = batch.sizes(t.scalar_type()).unsqueeze(0);
  const at::Tensor wider_count = count + pick_children(sums_before(sizes), own);
  const at::Tensor complete = sizes * pick_children(t, batch.last_leaf());
  parts.query_sum.push_back((query_sum + pick_children(sums_before(child_q_sums), own)).flatten(1, 2));
  parts.count.push_back(wider_count.flatten(1, 2));
  parts.e.push_back(((pick_children(sums_before(complete), own) + count * t) / wider_count).flatten(1, 2));
}

}  // namespace

HeadsFirstOutput leaf_attention(const Setup& setup, LeafQuery query) {
  const bool prefix = query == LeafQuery::prefix_mean;
  Climb climb = {setup.self_value, setup.self_score, {}, {}};
  if (prefix) {
    climb.query_sum = setup.leaf_q;
    climb.count = at::ones({1, setup.num_leaves()}, setup.leaf_q.options());
  }
  std::vector<at::Tensor> k_parts, v_parts, q_parts;
  for (size_t l = setup.levels.size(); l-- > 1;) {
    const Level& level = setup.levels[l];
    const at::Tensor k = level.rows(setup.k[l], std::exchange(k_parts, {}));
    const at::Tensor v = level.rows(setup.v[l], std::exchange(v_parts, {}));
    const at::Tensor q_sums = prefix ? level.rows(setup.q[l], std::exchange(q_parts, {})) : at::Tensor();

    RowOrder order(setup.num_leaves());
    ClimbParts parts;
    for (const BatchRows& batch : level.batches()) {
      const at::Tensor own = batch.child_of_leaf();
      const at::Tensor query_sum = prefix ? batch.take_queries(climb.query_sum) : at::Tensor();
      const at::Tensor count = prefix ? batch.take_queries(climb.count) : at::Tensor();
      const at::Tensor queries = prefix ? query_sum / count.unsqueeze(-1) : batch.take_queries(setup.leaf_q);
      const FamilyAttentionInput input = family_input(setup, l, batch, queries, own, k, v);
      const FamilyStep step = family_step(setup, batch, input, batch.take_queries(climb.e));

      const at::Tensor gathered = step.stay.unsqueeze(-1) * batch.take_queries(climb.gathered) + step.spread;
      parts.gathered.push_back(gathered.flatten(1, 2));
      const at::Tensor sizes = batch.sizes(k.scalar_type());
      if (prefix) {
        const at::Tensor children_q = batch.take_children(q_sums);
        widen_prefix(batch, own, children_q, step.energy, query_sum, count, parts);
        // Padding repeats a child, so it must not be summed.
        const at::Tensor padding = (sizes == 0).unsqueeze(0).unsqueeze(-1);
        q_parts.push_back(children_q.masked_fill(padding, 0).sum(2));
      } else {
        parts.e.push_back(step.energy.flatten(1, 2));
      }
      k_parts.push_back(weighted_mean(input.k, sizes));
      v_parts.push_back(weighted_mean(input.v, sizes));
      order.add(batch.queries(setup.num_leaves()));
    }
    climb.gathered = order.restore(std::move(parts.gathered), climb.gathered);
    climb.e = order.restore(std::move(parts.e), climb.e);
    if (prefix) {
      climb.query_sum = order.restore(std::move(parts.query_sum), climb.query_sum);
      climb.count = order.restore(std::move(parts.count), climb.count);
    }
  }
  return {climb.gathered, climb.e};
}

}  // namespace ramify::composed
