// Attention with untied queries for every instruction set.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/untied_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/leaves-inl.h"
#include "kernels/cpu/untied_attention.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// What the leaves from `leaf` on will need: as keys, and as queries.
LeavesAhead keys_ahead(const Call& call, int64_t leaf, int64_t count, HeadRange range) {
  const AttentionParams& p = call.p;
  count = std::min(count, static_cast<int64_t>(p.walk.leaf_nodes.size()) - leaf);
  LeavesAhead ahead;
  ahead.add(Source(p.k, p.storage, p.dim), leaf, count, range.key_begin, range.key_end);
  ahead.add(Source(p.v, p.storage, p.value_dim), leaf, count, range.key_begin, range.key_end);
  return ahead;
}
LeavesAhead tile_ahead(const Call& call, int64_t leaf, HeadRange range, std::initializer_list<Source> of_queries) {
  const int64_t count = std::min(kLanes, static_cast<int64_t>(call.p.walk.leaf_nodes.size()) - leaf);
  LeavesAhead ahead = keys_ahead(call, leaf, count, range);
  for (const Source& source : of_queries) {
    ahead.add(source, leaf, count, range.key_begin * call.group, range.key_end * call.group);
  }
  return ahead;
}

void untied_pool_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const WalkNode& node = call.p.walk.nodes[n];
  const NodeSource k = keys_of(call), v = values_of(call);
  LeavesAhead ahead;  // the next family, if all are leaves
  if (node.size == node.num_children) ahead = keys_ahead(call, node.first_leaf + node.size, node.size, range);
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    const int64_t row = node.inner * call.p.key_heads + g;
    ahead.bring(8 * node.size);
    pool_node(call, k, node, g, s.staged[1], call.mean_k + row * call.dim);
    pool_node(call, v, node, g, s.staged[2], call.mean_v + row * call.value_dim);
  }
}

// step(node) for all inner nodes of a grove, parents after or before their children.
enum class Direction { up, down };
template <class Step>
void for_each_inner(const Call& call, const Grove& grove, Direction direction, const Step& step) {
  const auto nodes = call.p.walk.nodes;
  struct Range {
    int64_t begin, end;
  };
  Range levels[kGroveLeaves];
  int64_t count = 0;
  for (Range r = {grove.root_begin, grove.root_end}; r.begin < r.end && count < kGroveLeaves; ++count) {
    levels[count] = r;
    r = {nodes[r.begin].first_child, nodes[r.end - 1].first_child + nodes[r.end - 1].num_children};
  }
  for (int64_t l = 0; l < count; ++l) {
    const Range r = levels[direction == Direction::down ? l : count - 1 - l];
    for (int64_t n = r.begin; n < r.end; ++n) {
      if (!nodes[n].is_leaf()) step(n);
    }
  }
}

void untied_pool_grove_impl(const Call& call, const Grove& grove, HeadRange range, Scratch& s) {
  for_each_inner(call, grove, Direction::up, [&](int64_t n) { untied_pool_impl(call, n, range, s); });
}

// visit(first) for the blocks of a family, with its children from node `first` on in `keys`.
template <class Visit>
void for_each_block(const Call& call, const LeafTile& tile, const WalkNode& family, int64_t lane_begin,
                    int64_t lane_end, int64_t h, Scratch& s, KeyBlock& keys, const Visit& visit) {
  keys.lane_begin = lane_begin, keys.lane_end = lane_end;
  for (int64_t j = 0; j < family.num_children; j += kKeyBlock) {
    gather_keys(call, tile, family.first_child + j, std::min(kKeyBlock, family.num_children - j), h, s, keys);
    visit(family.first_child + j);
  }
}

void untied_attend_impl(const Call& call, const LeafRun& run, HeadRange range, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim);
  const Target out(call.out, p.storage, p.value_dim);
  const int64_t value_channels = in_lanes(p.value_dim);
  const bool streams = call.streams && out.is_direct;
  KeyBlock keys;
  const float *rows[kLanes], *position_rows[kLanes];
  for (int64_t i = 0; i < run.count; i += kLanes) {
    const LeafTile tile = {run.first_leaf + i, std::min(kLanes, run.count - i)};
    LeavesAhead ahead = tile_ahead(call, tile.first + kLanes, range, {q});
    for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
      gather_tile(q, tile, h, call.dim, s.staged[0], s, rows, s.columns);
      Seen seen;
      for (int64_t l = 0; l < tile.count; ++l) {
        seen.rows[l] = s.staged[4] + l * call.value_dim;
        std::fill_n(seen.rows[l], value_channels, 0.0f);
      }
      const QueryTile queries = {s.columns, s.position_columns};
      for_each_family(call, tile, [&](const WalkNode& family, int64_t lane_begin, int64_t lane_end) {
        if (call.position_dim > 0) {
          interleave_positions(call, tile, family, lane_begin, lane_end, h, s, position_rows);
        }
        for_each_block(call, tile, family, lane_begin, lane_end, h, s, keys,
                       [&](int64_t) { see_block(call, queries, keys, seen, s.scores, ahead); });
      });
      const Total total = total_of(seen);
      HWY_ALIGN float log_sum[kLanes], inverse[kLanes];
      hn::Store(total.log_sum, f, log_sum);
      hn::Store(total.inverse, f, inverse);
      for (int64_t l = 0; l < tile.count; ++l) {
        const int64_t leaf = tile.first + l;
        call.log_sums[leaf * p.heads + h] = log_sum[l];
        float* y = out.row(leaf, h, seen.rows[l]);
        for_each_vector(value_channels, [&](RowPart part) {
          const V value = hn::Mul(part.load(seen.rows[l]), hn::Set(f, inverse[l]));
          if (streams) {
            hn::Stream(value, f, y + part.begin);
          } else {
            part.store(value, y);
          }
        });
        out.finish(leaf, h, y);
      }
    }
  }
}

void untied_energy_impl(const Call& call, int64_t n, HeadRange range, Scratch&) {
  const WalkNode& root = call.p.walk.nodes[n];
  const int64_t heads = call.p.heads;
  if (root.is_leaf()) return;
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    double sum = 0;
    for (int64_t l = root.first_leaf; l < root.first_leaf + root.size; ++l) sum += call.log_sums[l * heads + h];
    call.root_energy[n * heads + h] = static_cast<float>(sum / static_cast<double>(root.size));
  }
}

// ḡ of a leaf: its part of the energy's gradient.
float slope_of(const Call& call, int64_t leaf, int64_t h) {
  const auto nodes = call.p.walk.nodes;
  int64_t n = call.p.walk.leaf_nodes[leaf];
  while (nodes[n].parent >= 0) n = nodes[n].parent;
  return call.grad_root_energy[n * call.p.heads + h] / static_cast<float>(nodes[n].size);
}

// s̄ = p (ḡ + product - dot) over the weights of a block.
void adjoint_of_block(const KeyBlock& keys, V dot, V slope, const float* weights, const float* products, float* s_bar) {
  const F f;
  for (int64_t j = 0; j < keys.count; ++j) {
    const V weight = hn::Load(f, weights + j * kLanes);
    const V change = hn::Add(slope, hn::Sub(hn::Load(f, products + j * kLanes), dot));
    hn::Store(hn::Mul(weight, where_seen(weight, change)), f, s_bar + j * kLanes);
  }
}

V load_slopes(const Call& call, const LeafTile& tile, int64_t h) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t l = 0; l < tile.count; ++l) lanes[l] = slope_of(call, tile.first + l, h);
  return hn::Load(F(), lanes);
}

void clear_sums_of(const Call& call, const WalkNode& leaf, HeadRange range) {
  const NodeSums k_sums = key_sums(call), v_sums = value_sums(call);
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    std::fill_n(k_sums.at(leaf, g), in_lanes(call.p.dim), 0.0f);
    std::fill_n(v_sums.at(leaf, g), in_lanes(call.p.value_dim), 0.0f);
  }
}

// Of the leaves that are children of a crown node: queries of several runs add to them.
void untied_clear_leaves_impl(const Call& call, int64_t n, HeadRange range, Scratch&) {
  const WalkNode& family = call.p.walk.nodes[n];
  for (int64_t c = family.first_child; c < family.first_child + family.num_children; ++c) {
    const WalkNode& child = call.p.walk.nodes[c];
    if (child.is_leaf()) clear_sums_of(call, child, range);
  }
}

// Whether gradients of a crown family's keys are added with those of the queries, by a thread that has a head for
// itself, or later. Either way tile by tile in the order of leaves, so that sums have the same bits.
enum class CrownKeys { now, later };

void backward_queries(const Call& call, const LeafRun& run, HeadRange range, CrownKeys crown_keys, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const Target grad_q(call.grad_q, p.storage, p.dim);
  const NodeSums k_sums = key_sums(call), v_sums = value_sums(call);
  const int64_t channels = in_lanes(p.dim);
  KeyBlock keys;
  const float *q_rows[kLanes], *y_rows[kLanes], *position_rows[kLanes];
  float* gradients[kLanes];
  HWY_ALIGN float scales[kLanes];
  std::fill_n(scales, kLanes, p.scale);
  for (int64_t l = run.first_leaf; l < run.first_leaf + run.count; ++l) {
    const WalkNode& leaf = p.walk.nodes[p.walk.leaf_nodes[l]];
    if (!p.walk.nodes[leaf.parent].is_crown()) clear_sums_of(call, leaf, range);
  }
  for (int64_t i = 0; i < run.count; i += kLanes) {
    const LeafTile tile = {run.first_leaf + i, std::min(kLanes, run.count - i)};
    LeavesAhead ahead = tile_ahead(call, tile.first + kLanes, range, {q, grad_out});
    for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
      gather_tile(q, tile, h, call.dim, s.staged[0], s, q_rows, s.columns);
      gather_tile(grad_out, tile, h, call.value_dim, s.staged[3], s, y_rows, s.y_columns);
      const V log_sum = load_leaves(call.log_sums, call, tile, h), slope = load_slopes(call, tile, h);
      const QueryTile queries = {s.columns, s.position_columns};
      // first all weights and products of the path, whose sum every gradient needs
      V dot = hn::Zero(f), sum = hn::Zero(f);
      int64_t used = 0;
      for_each_family(call, tile, [&](const WalkNode& family, int64_t lane_begin, int64_t lane_end) {
        if (call.position_dim > 0) {
          interleave_positions(call, tile, family, lane_begin, lane_end, h, s, position_rows);
        }
        for_each_block(call, tile, family, lane_begin, lane_end, h, s, keys, [&](int64_t) {
          float *weights = s.path_weights + used * kLanes, *products = s.path_products + used * kLanes;
          weigh_block(call, queries, s.y_columns, keys, log_sum, weights, products, ahead);
          for (int64_t j = 0; j < keys.count; ++j) {
            const V weight = hn::Load(f, weights + j * kLanes);
            dot = hn::MulAdd(weight, where_seen(weight, hn::Load(f, products + j * kLanes)), dot);
            sum = hn::Add(sum, weight);
          }
          used += keys.count;
        });
      });
      // the weights sum to 1 only up to the rounding of log_sum, which would not cancel against the products
      dot = hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(f)), hn::Div(dot, sum));
      HWY_ALIGN float dots[kLanes];
      hn::Store(dot, f, dots);
      for (int64_t l = 0; l < tile.count; ++l) {
        call.leaf_dots[(tile.first + l) * p.heads + h] = dots[l];
        gradients[l] = grad_q.row(tile.first + l, h, s.staged[4] + l * call.dim);
        std::fill_n(gradients[l], channels, 0.0f);
      }
      used = 0;
      for_each_family(call, tile, [&](const WalkNode& family, int64_t lane_begin, int64_t lane_end) {
        if (call.position_dim > 0) {
          interleave_positions(call, tile, family, lane_begin, lane_end, h, s, position_rows);
        }
        for_each_block(call, tile, family, lane_begin, lane_end, h, s, keys, [&](int64_t first) {
          const float* weights = s.path_weights + used * kLanes;
          adjoint_of_block(keys, dot, slope, weights, s.path_products + used * kLanes, s.scores);
          used += keys.count;
          Combination combination;
          combination.adds = combination.hides = true;
          combination.a = s.scores + lane_begin, combination.term_step = kLanes;
          combination.terms = keys.k, combination.num_terms = keys.count;
          combination.row_scale = scales;
          ahead.bring();
          combine_rows(combination, lane_end - lane_begin, channels, gradients + lane_begin);
          if (family.is_crown() && crown_keys == CrownKeys::later) return;
          add_to_keys(call, keys, first, h / call.group, s.scores, weights, q_rows, y_rows, k_sums, v_sums);
          if (call.position_dim > 0) add_to_positions(call, tile, family, keys, first, h, s.scores, position_rows, s);
        });
      });
      for (int64_t l = 0; l < tile.count; ++l) grad_q.finish(tile.first + l, h, gradients[l]);
    }
  }
}

void untied_backward_queries_impl(const Call& call, const LeafRun& run, HeadRange range, Scratch& s) {
  backward_queries(call, run, range, CrownKeys::later, s);
}
void untied_backward_run_impl(const Call& call, const LeafRun& run, HeadRange range, Scratch& s) {
  backward_queries(call, run, range, CrownKeys::now, s);
}

// Gradients of the keys of one crown family from the leaves of one tile, `lane_begin` to `lane_end` of which are below.
void backward_keys(const Call& call, const WalkNode& family, const LeafTile& tile, int64_t lane_begin, int64_t lane_end,
                   int64_t h, Scratch& s) {
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const NodeSums k_sums = key_sums(call), v_sums = value_sums(call);
  KeyBlock keys;
  const float *q_rows[kLanes], *y_rows[kLanes], *position_rows[kLanes];
  gather_tile(q, tile, h, call.dim, s.staged[0], s, q_rows, s.columns);
  gather_tile(grad_out, tile, h, call.value_dim, s.staged[3], s, y_rows, s.y_columns);
  const V log_sum = load_leaves(call.log_sums, call, tile, h), slope = load_slopes(call, tile, h);
  const V dot = load_leaves(call.leaf_dots, call, tile, h);
  const QueryTile queries = {s.columns, s.position_columns};
  if (call.position_dim > 0) interleave_positions(call, tile, family, lane_begin, lane_end, h, s, position_rows);
  for_each_block(call, tile, family, lane_begin, lane_end, h, s, keys, [&](int64_t first) {
    HWY_ALIGN float s_bar[kKeyBlock * kLanes];
    LeavesAhead nothing;
    weigh_block(call, queries, s.y_columns, keys, log_sum, s.scores, s.products, nothing);
    adjoint_of_block(keys, dot, slope, s.scores, s.products, s_bar);
    add_to_keys(call, keys, first, h / call.group, s_bar, s.scores, q_rows, y_rows, k_sums, v_sums);
    if (call.position_dim > 0) add_to_positions(call, tile, family, keys, first, h, s_bar, position_rows, s);
  });
}

void untied_backward_keys_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const WalkNode& family = call.p.walk.nodes[n];
  const auto runs = call.p.walk.runs;
  const int64_t begin = family.first_leaf, end = begin + family.size;
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const LeafRun& before) { return before.first_leaf + before.count <= begin; });
  for (; run != runs.end() && run->first_leaf < end; ++run) {
    for (int64_t i = 0; i < run->count; i += kLanes) {
      const LeafTile tile = {run->first_leaf + i, std::min(kLanes, run->count - i)};
      const int64_t lane_begin = std::max<int64_t>(0, begin - tile.first);
      const int64_t lane_end = std::min(tile.count, end - tile.first);
      if (lane_begin >= lane_end) continue;
      for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
        backward_keys(call, family, tile, lane_begin, lane_end, h, s);
      }
    }
  }
}

// A node's own gradient, divided among its leaves, and what came from above: leaves are finished, others pass it on.
void untied_share_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const F f;
  const auto nodes = call.p.walk.nodes;
  const WalkNode& parent = nodes[n];
  for (const NodeSums& sums : {key_sums(call), value_sums(call)}) {
    const int64_t channels = in_lanes(sums.leaves.dim);
    for (int64_t g = range.key_begin; g < range.key_end; ++g) {
      const float* above = parent.parent < 0 ? s.zeros : sums.at(parent, g);
      for (int64_t c = parent.first_child; c < parent.first_child + parent.num_children; ++c) {
        float* row = sums.at(nodes[c], g);
        const V share = hn::Set(f, 1.0f / static_cast<float>(nodes[c].size));
        for_each_vector(channels,
                        [&](RowPart part) { part.store(hn::MulAdd(part.load(row), share, part.load(above)), row); });
        if (!nodes[c].is_leaf() || sums.in_place) continue;
        const Target& tensor = sums.leaves;
        narrow_rows(tensor.storage, row, 0, 1, tensor.dim, const_cast<char*>(tensor.at(nodes[c].first_leaf, g)), 0);
      }
    }
  }
}

void untied_share_grove_impl(const Call& call, const Grove& grove, HeadRange range, Scratch& s) {
  for_each_inner(call, grove, Direction::down, [&](int64_t n) { untied_share_impl(call, n, range, s); });
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

RAMIFY_CPU_STEP(untied_pool_grove, const Grove&)
RAMIFY_CPU_STEP(untied_pool, int64_t)
RAMIFY_CPU_STEP(untied_attend, const LeafRun&)
RAMIFY_CPU_STEP(untied_energy, int64_t)
RAMIFY_CPU_STEP(untied_clear_leaves, int64_t)
RAMIFY_CPU_STEP(untied_backward_run, const LeafRun&)
RAMIFY_CPU_STEP(untied_backward_queries, const LeafRun&)
RAMIFY_CPU_STEP(untied_backward_keys, int64_t)
RAMIFY_CPU_STEP(untied_share, int64_t)
RAMIFY_CPU_STEP(untied_share_grove, const Grove&)

}  // namespace ramify::cpu
#endif
