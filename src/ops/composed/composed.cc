#include "ops/composed/composed.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "ops/composed/sparse.h"

namespace ramify::composed {
namespace {

std::vector<Level> make_levels(const PlanView& plan) {
  std::vector<Level> levels;  // built from the deepest, since a level asks for the families below it
  const std::vector<BatchRows> none;
  for (size_t l = plan.levels.size(); l-- > 0;) {
    levels.emplace_back(plan, plan.levels[l], levels.empty() ? none : levels.back().batches());
  }
  std::reverse(levels.begin(), levels.end());
  return levels;
}

at::Tensor heads_first(const at::Tensor& tensor, int64_t heads, at::ScalarType dtype) {
  const at::Tensor rows = tensor.to(dtype).transpose(0, 1);
  return rows.size(0) == heads ? rows.contiguous() : rows.repeat_interleave(heads / rows.size(0), 0);
}

// Position vectors [H, n, dp] of the given nodes; the zero vector where the index is -1.
at::Tensor positions_of(const Problem& p, const at::Tensor& nodes, at::ScalarType dtype) {
  const at::Tensor index = p.position_index.index_select(0, nodes);
  const at::Tensor table = at::constant_pad_nd(p.positions, {0, 0, 0, 0, 0, 1});  // -1 means the row behind the last
  const at::Tensor rows = index.masked_fill(index < 0, p.positions.size(0));
  return heads_first(table.index_select(0, rows), p.num_heads(), dtype);
}

// The original node of every leaf, [T].
at::Tensor leaf_nodes(const PlanView& plan) {
  const at::Tensor leaf = plan.leaves.select(1, kLeafNumber), node = plan.leaves.select(1, kLeafPositionNode);
  return at::empty_like(node).index_copy_(0, leaf, node);
}

Setup make_setup(const Problem& p, const PlanView& plan, const InnerAttention& inner) {
  const at::ScalarType dtype = compute_dtype(p.q.scalar_type());
  Setup setup(plan, make_levels(plan), inner);
  const at::Tensor q = heads_first(p.q, p.num_heads(), dtype);
  const at::Tensor k = heads_first(p.k, p.num_heads(), dtype);
  const at::Tensor v = heads_first(p.v, p.num_heads(), dtype);
  setup.leaf_q = q;
  setup.q = leaves_by_level(q, plan);
  setup.k = leaves_by_level(k, plan);
  setup.v = leaves_by_level(v, plan);
  setup.scale = p.scale, setup.include_self = p.include_self;
  setup.finite_values = v.detach().isfinite().all().item<bool>();
  setup.mask = p.causal == Causal::none ? SiblingMask::others : SiblingMask::left;
  if (p.alpha.defined()) setup.alpha = p.alpha.to(q.options());
  if (p.positions.defined()) {
    setup.positions = nodes_by_level(positions_of(p, plan.nodes.select(1, kNodePositionNode), dtype), plan);
  }
  if (p.include_self) {
    setup.self_score = (q * k).sum(-1) * p.scale;
    if (p.positions.defined()) {
      setup.self_score = setup.self_score + positions_of(p, leaf_nodes(plan), dtype).square().sum(-1);
    }
    setup.self_value = v;
  } else {
    setup.self_score = at::full({p.num_heads(), p.num_leaves()}, -INFINITY, q.options());
    setup.self_value = at::zeros_like(v);
  }
  return setup;
}

// [H, T] energies of leaves to [H, roots]: their mean, or the last one's where that is the whole tree's.
at::Tensor root_energies(const Problem& p, const PlanView& plan, const at::Tensor& leaf_energy) {
  if (plan.levels.empty()) return leaf_energy;
  const at::Tensor roots = plan.nodes.narrow(0, 0, plan.levels[0].num_nodes);
  const at::Tensor sizes = roots.select(1, kNodeSize);
  if (p.tie == Tie::block) return leaf_energy.index_select(1, roots.select(1, kNodeFirstLeaf) + sizes - 1);
  const at::Tensor root_of_leaf = at::repeat_interleave(sizes, std::optional<int64_t>(p.num_leaves()));
  const at::Tensor sums =
      at::zeros({p.num_heads(), sizes.size(0)}, leaf_energy.options()).index_add(1, root_of_leaf, leaf_energy);
  return sums / sizes;
}

// [H, roots] to [trees, H]; -inf for trees without a node.
at::Tensor tree_energies(const Problem& p, const at::Tensor& root_energy) {
  const at::Tensor& begin = p.forest[2];
  const int64_t num_trees = p.num_trees();
  if (root_energy.size(1) == num_trees) return root_energy.t().contiguous();
  const at::Tensor has_root = begin.narrow(0, 1, num_trees) > begin.narrow(0, 0, num_trees);
  const at::Tensor trees = has_root.nonzero().squeeze(1).to(root_energy.device());
  return at::full({num_trees, p.num_heads()}, -INFINITY, root_energy.options()).index_copy(0, trees, root_energy.t());
}

bool is_sparse(const at::Tensor& alpha) {
  return alpha.defined() && (alpha.detach() >= kSoftmaxAlpha).any().item<bool>();
}

}  // namespace

AttentionOutput attention(const Problem& p, const InnerAttention& inner) {
  // Sums and exponentials are computed in compute_dtype, whatever autocast would make of the products.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const PlanView plan(p.plan);
  const Setup setup = make_setup(p, plan, inner);
  HeadsFirstOutput result;
  if (p.tie == Tie::none) {
    result = p.window > 0         ? window_attention(setup, p.window)
             : is_sparse(p.alpha) ? untied_sparse_attention(setup)
                                  : leaf_attention(setup, LeafQuery::own);
  } else if (p.causal == Causal::prefix) {
    result = leaf_attention(setup, LeafQuery::prefix_mean);
  } else {
    result = block_attention(setup);
  }
  const bool per_leaf = queries_of(p.tie, p.causal) == Queries::leaves;
  const at::Tensor root_energy = per_leaf ? root_energies(p, plan, result.energy) : result.energy;
  return {result.out.transpose(0, 1).to(p.q.scalar_type()).contiguous(), tree_energies(p, root_energy)};
}

}  // namespace ramify::composed
