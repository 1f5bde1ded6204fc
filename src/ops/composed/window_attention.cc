// Untied queries with an exact window (docs/algorithm.md, section 6).
//
// The leaves inside the window are a band of ordinary attention. What a leaf sees to the left of it are the left
// siblings of the ancestors of the window's first leaf: all that an untied query would see to the left from that place.
// So the band comes first, and leaf_attention climbs on from it, with queries that stand at the edges of their windows.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <vector>

#include "ops/composed/composed.h"

namespace ramify::composed {
namespace {

// The trees, seen from leaves. int64 on the device.
struct LeafTrees {
  explicit LeafTrees(const PlanView& plan, int64_t num_leaves) {
    const at::Tensor roots = plan.nodes.narrow(0, 0, plan.levels[0].num_nodes);
    root_first = roots.select(1, kNodeFirstLeaf), root_size = roots.select(1, kNodeSize);
    root_of = at::repeat_interleave(root_size, std::optional<int64_t>(num_leaves));
    first = root_first.index_select(0, root_of);
    last = first + root_size.index_select(0, root_of) - 1;
    number = at::arange(num_leaves, first.options());
  }

  at::Tensor root_first, root_size;         // [roots]
  at::Tensor number, root_of, first, last;  // [T]: a leaf, its root, and the first and last leaf of its tree
};

// Queries in blocks of one tree each, and the keys that any of a block sees. Padding repeats leaves of the same tree.
struct Blocks {
  at::Tensor queries;  // [blocks, Q]
  at::Tensor keys;     // [blocks, K]
  at::Tensor hidden;   // [blocks, Q, K]
  at::Tensor row_of;   // [T]: where a leaf stands among all rows of `queries`
  int64_t count = 0;

  Blocks(const LeafTrees& trees, int64_t window, bool is_causal, bool include_self) {
    const int64_t largest = trees.root_size.max().item<int64_t>();
    const int64_t reach = std::min(window, largest - 1), right = is_causal ? 0 : reach;
    const int64_t width = std::min(std::max<int64_t>(32, std::min<int64_t>(reach, 128)), largest);
    const at::Tensor blocks_of_root = (trees.root_size + width - 1).floor_divide(width);
    const at::Tensor root = at::repeat_interleave(blocks_of_root);
    const at::Tensor first_block = blocks_of_root.cumsum(0) - blocks_of_root;
    count = root.size(0);
    const at::Tensor begin = trees.root_first.index_select(0, root).unsqueeze(1);  // [blocks, 1]
    const at::Tensor last = begin + trees.root_size.index_select(0, root).unsqueeze(1) - 1;
    const at::Tensor number = at::arange(count, root.options()) - first_block.index_select(0, root);
    const at::Tensor start = begin + number.unsqueeze(1) * width;
    const at::Tensor wanted_keys = start + at::arange(-reach, width + right, root.options());
    queries = (start + at::arange(width, root.options())).minimum(last);
    keys = wanted_keys.maximum(begin).minimum(last);
    const at::Tensor distance = queries.unsqueeze(2) - wanted_keys.unsqueeze(1);  // to the left
    hidden = (distance > reach).logical_or(distance < -right).logical_or((wanted_keys != keys).unsqueeze(1));
    if (!include_self) hidden = hidden.logical_or(distance == 0);
    row_of = first_block.index_select(0, trees.root_of) * width + trees.number - trees.first;
  }
};

// The leaves inside the window, with themselves where they see themselves: [H, T, dv] and [H, T].
HeadsFirstOutput band_attention(const Setup& setup, const at::Tensor& k, const at::Tensor& v, const Blocks& blocks) {
  // So many blocks at once that scores stay within some 16 million numbers.
  const int64_t numbers = setup.leaf_q.size(0) * blocks.hidden.size(1) * blocks.hidden.size(2);
  const int64_t step = std::clamp<int64_t>((int64_t{1} << 24) / std::max<int64_t>(numbers, 1), 1, blocks.count);
  std::vector<at::Tensor> outs, log_sums;
  for (int64_t b = 0; b < blocks.count; b += step) {
    const int64_t count = std::min(step, blocks.count - b);
    const auto take = [&](const at::Tensor& rows, const at::Tensor& index) {
      const at::Tensor part = index.narrow(0, b, count);
      return rows.index_select(1, part.flatten()).unflatten(1, part.sizes());
    };
    FamilyAttentionInput values;
    values.v = take(v, blocks.keys), values.finite_values = setup.finite_values;
    const at::Tensor scores =
        at::matmul(take(setup.leaf_q, blocks.queries) * setup.scale, take(k, blocks.keys).transpose(-1, -2))
            .masked_fill(blocks.hidden.narrow(0, b, count), -INFINITY);
    at::Tensor shift = scores.detach().amax(-1, /*keepdim=*/true);
    shift = shift.masked_fill(shift.isneginf(), 0);
    const at::Tensor weights = (scores - shift).exp();
    const at::Tensor sum = weights.sum(-1), nothing = sum == 0, divisor = sum.masked_fill(nothing, 1);
    outs.push_back((weighted_values(weights, values) / divisor.unsqueeze(-1)).flatten(1, 2));
    log_sums.push_back((divisor.log() + shift.squeeze(-1)).masked_fill(nothing, -INFINITY).flatten(1, 2));
  }
  return {at::cat(outs, 1).index_select(1, blocks.row_of), at::cat(log_sums, 1).index_select(1, blocks.row_of)};
}

// What leaves see beyond one edge of their windows, `distance` away (to the left: negative), joins what they have.
HeadsFirstOutput look_beyond(const Setup& setup, const LeafTrees& trees, int64_t distance, HeadsFirstOutput have) {
  // The query at each place, some leaf of the tree where there is none; what comes of that is not looked at.
  const at::Tensor query = (trees.number - distance).maximum(trees.first).minimum(trees.last);
  Setup edge = setup;
  edge.mask = distance < 0 ? SiblingMask::left : SiblingMask::right;
  edge.leaf_q = setup.leaf_q.index_select(1, query);
  edge.self_score = have.energy.index_select(1, query);
  edge.self_value = have.out.index_select(1, query);
  const HeadsFirstOutput seen = leaf_attention(edge, LeafQuery::own);
  // Back to the leaves; those whose window reaches beyond the tree have seen all there is on this side.
  const at::Tensor place = trees.number + distance;
  const at::Tensor is_inside = (place >= trees.first).logical_and(place <= trees.last);
  const at::Tensor source = at::where(is_inside, place, trees.number + setup.num_leaves());
  return {at::cat({seen.out, have.out}, 1).index_select(1, source),
          at::cat({seen.energy, have.energy}, 1).index_select(1, source)};
}

at::Tensor leaves_in_order(const std::vector<at::Tensor>& by_level, const PlanView& plan) {
  const at::Tensor number = plan.leaves.select(1, kLeafNumber);
  const at::Tensor place = at::arange(number.size(0), number.options());
  return at::cat(by_level, 1).index_select(1, at::empty_like(number).index_copy_(0, number, place));
}

}  // namespace

HeadsFirstOutput window_attention(const Setup& setup, int64_t window) {
  if (setup.num_leaves() == 0) return {setup.self_value, setup.self_score};
  const bool is_causal = setup.mask == SiblingMask::left;
  const LeafTrees trees(setup.plan, setup.num_leaves());
  const at::Tensor k = leaves_in_order(setup.k, setup.plan), v = leaves_in_order(setup.v, setup.plan);
  HeadsFirstOutput result = band_attention(setup, k, v, Blocks(trees, window, is_causal, setup.include_self));
  if (window >= setup.num_leaves()) return result;
  result = look_beyond(setup, trees, -window, result);
  return is_causal ? result : look_beyond(setup, trees, window, result);
}

}  // namespace ramify::composed
