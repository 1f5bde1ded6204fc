// Attention with untied queries for every instruction set.
#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/untied_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/family-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/untied_attention.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// Where rows of nodes are: leaves in the tensor, inner nodes among the means.
struct NodeSource {
  Source leaves;
  const float* means;
  int64_t heads, width;

  const float* read(const WalkNode& node, int64_t head, float* copy) const {
    return node.is_leaf() ? leaves.read(node.first_leaf, head, copy) : means + (node.inner * heads + head) * width;
  }
};

NodeSource keys_of(const Call& call) {
  return {Source(call.p.k, call.p.storage, call.p.dim), call.mean_k, call.p.key_heads, call.dim};
}
NodeSource values_of(const Call& call) {
  return {Source(call.p.v, call.p.storage, call.p.value_dim), call.mean_v, call.p.key_heads, call.value_dim};
}

// Where gradients of nodes as keys are summed.
struct NodeSums {
  Target leaves;
  bool in_place;
  float* leaf_sums;
  float* mean_sums;
  int64_t heads, width;

  float* at(const WalkNode& node, int64_t head) const {
    if (!node.is_leaf()) return mean_sums + (node.inner * heads + head) * width;
    if (in_place) return leaves.row(node.first_leaf, head, nullptr);
    return leaf_sums + (node.first_leaf * heads + head) * width;
  }
};

NodeSums key_sums(const Call& call) {
  const AttentionParams& p = call.p;
  return {Target(call.grad_k, p.storage, p.dim),
          sums_in_place(p, p.dim),
          call.leaf_grad_k,
          call.grad_mean_k,
          p.key_heads,
          call.dim};
}
NodeSums value_sums(const Call& call) {
  const AttentionParams& p = call.p;
  return {Target(call.grad_v, p.storage, p.value_dim),
          sums_in_place(p, p.value_dim),
          call.leaf_grad_v,
          call.grad_mean_v,
          p.key_heads,
          call.value_dim};
}

void pool_node(const Call& call, const NodeSource& source, const WalkNode& node, int64_t head, float* copies,
               float* to) {
  const F f;
  const float scale = 1.0f / static_cast<float>(node.size);
  const int64_t channels = in_lanes(source.leaves.dim);
  const float* rows[kKeyBlock];
  float sizes[kKeyBlock];
  HWY_ALIGN float part[kMaxDim];
  for (int64_t j = 0; j < node.num_children; j += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, node.num_children - j);
    for (int64_t i = 0; i < count; ++i) {
      const WalkNode& child = call.p.walk.nodes[node.first_child + j + i];
      rows[i] = source.read(child, head, copies + i * source.width);
      sizes[i] = static_cast<float>(child.size);
    }
    if (j == 0) {
      pool_rows(rows, sizes, count, scale, channels, to);
      continue;
    }
    pool_rows(rows, sizes, count, scale, channels, part);
    for (int64_t c = 0; c < channels; c += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(f, to + c), hn::LoadU(f, part + c)), f, to + c);
    }
  }
}

void untied_pool_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const WalkNode& node = call.p.walk.nodes[n];
  const NodeSource k = keys_of(call), v = values_of(call);
  for (int64_t g = range.key_begin; g < range.key_end; ++g) {
    const int64_t row = node.inner * call.p.key_heads + g;
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

// Leaves [first, first + count) as queries, and the families on their way up: visit(family, lane_begin, lane_end), each
// once, with the lanes below it.
struct LeafTile {
  int64_t first = 0, count = 0;
};
template <class Visit>
void for_each_family(const Call& call, const LeafTile& tile, const Visit& visit) {
  const auto nodes = call.p.walk.nodes;
  for (int64_t l = 0; l < tile.count; ++l) {
    int64_t n = nodes[call.p.walk.leaf_nodes[tile.first + l]].parent;
    for (; n >= 0; n = nodes[n].parent) {
      const WalkNode& family = nodes[n];
      // an earlier lane below this family has visited it, and all above
      if (l > 0 && family.first_leaf < tile.first + l) break;
      visit(family, l, std::min(tile.count, family.first_leaf + family.size - tile.first));
    }
  }
}

// The child of `family` that holds a leaf. Children are in the order of leaves.
int64_t child_above(const Call& call, const WalkNode& family, int64_t leaf) {
  const auto nodes = call.p.walk.nodes;
  int64_t low = family.first_child, high = family.first_child + family.num_children - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (nodes[middle].first_leaf <= leaf) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// What a leaf shows of its position to the children of a family: the position of its ancestor among them.
void interleave_positions(const Call& call, const LeafTile& tile, const WalkNode& family, int64_t lane_begin,
                          int64_t lane_end, int64_t h, Scratch& s, const float** rows) {
  for (int64_t l = 0; l < kLanes; ++l) {
    rows[l] = s.zeros;
    if (l < lane_begin || l >= lane_end) continue;
    const int64_t ancestor = child_above(call, family, tile.first + l);
    rows[l] = position_row(call, call.p.node_position[ancestor], h,
                           s.staged_positions + (kKeyBlock + l) * call.position_dim, s);
  }
  interleave_rows(rows, in_lanes(call.p.position_dim), s.position_columns);
}

bool has_own_position(const Call& call, int64_t n) {
  const WalkNode& node = call.p.walk.nodes[n];
  return call.position_dim > 0 && call.p.include_self && node.is_leaf() &&
         call.p.self_position[node.first_leaf] != call.p.node_position[n];
}

// Children [begin, begin + count) of a family as keys of a tile.
void gather_keys(const Call& call, const LeafTile& tile, int64_t begin, int64_t count, int64_t h, Scratch& s,
                 KeyBlock& keys) {
  const AttentionParams& p = call.p;
  const NodeSource k = keys_of(call), v = values_of(call);
  const int64_t g = h / call.group;
  keys.count = count, keys.has_sizes = false;
  for (int64_t j = 0; j < count; ++j) {
    const WalkNode& node = p.walk.nodes[begin + j];
    keys.k[j] = k.read(node, g, s.staged[1] + j * call.dim);
    keys.v[j] = v.read(node, g, s.staged[2] + j * call.value_dim);
    keys.has_sizes |= !node.is_leaf();
    keys.log_size[j] = node.is_leaf() ? 0.0f : std::log(static_cast<float>(node.size));
    const int64_t lane = node.first_leaf - tile.first;
    const bool is_self_seen = node.is_leaf() && p.include_self;
    keys.hidden_begin[j] = static_cast<float>(lane);
    keys.hidden_end[j] = static_cast<float>(is_self_seen ? lane : lane + node.size);
    keys.visible_from[j] = p.causal == Causal::none ? -1.0f : keys.hidden_end[j];
    keys.self_lane[j] = -1;
    if (call.position_dim == 0) continue;
    keys.position[j] = position_row(call, p.node_position[begin + j], h, s.staged_positions + j * call.position_dim, s);
    if (!has_own_position(call, begin + j) || lane < 0 || lane >= tile.count) continue;
    HWY_ALIGN float copy[kMaxPositionDim];
    const float* own = position_row(call, p.self_position[node.first_leaf], h, copy, s);
    const int64_t channels = in_lanes(p.position_dim);
    keys.self_lane[j] = lane;
    keys.self_difference[j] = dot_row(own, own, channels) - dot_row(keys.position[j], keys.position[j], channels);
  }
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

// Rows of leaves of a tensor, interleaved.
void gather_tile(const Source& source, const LeafTile& tile, int64_t h, int64_t width, float* copies, const Scratch& s,
                 const float** rows, float* blocks) {
  for (int64_t l = 0; l < tile.count; ++l) rows[l] = source.read(tile.first + l, h, copies + l * width);
  interleave_tile(rows, tile.count, in_lanes(source.dim), s.zeros, blocks);
}

void untied_attend_impl(const Call& call, const LeafRun& run, HeadRange range, Scratch& s) {
  const F f;
  const AttentionParams& p = call.p;
  const Source q(p.q, p.storage, p.dim);
  const Target out(call.out, p.storage, p.value_dim);
  const int64_t value_channels = in_lanes(p.value_dim);
  KeyBlock keys;
  const float *rows[kLanes], *position_rows[kLanes];
  for (int64_t i = 0; i < run.count; i += kLanes) {
    const LeafTile tile = {run.first_leaf + i, std::min(kLanes, run.count - i)};
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
                       [&](int64_t) { see_block(call, queries, keys, seen, s.scores); });
      });
      const Total total = total_of(seen);
      HWY_ALIGN float log_sum[kLanes], inverse[kLanes];
      hn::Store(total.log_sum, f, log_sum);
      hn::Store(total.inverse, f, inverse);
      for (int64_t l = 0; l < tile.count; ++l) {
        const int64_t leaf = tile.first + l;
        call.log_sums[leaf * p.heads + h] = log_sum[l];
        float* y = out.row(leaf, h, seen.rows[l]);
        for (int64_t c = 0; c < value_channels; c += kLanes) {
          hn::StoreU(hn::Mul(hn::LoadU(f, seen.rows[l] + c), hn::Set(f, inverse[l])), f, y + c);
        }
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
    // a lane that does not see a key has no part in its gradient, whatever numbers it holds
    hn::Store(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(f)), hn::Mul(weight, change)), f, s_bar + j * kLanes);
  }
}

// Gradients of the keys of a block from the lanes that look at it: k̄ += scale s̄ q, v̄ += p ȳ.
void add_to_keys(const Call& call, const KeyBlock& keys, int64_t first, int64_t g, const float* s_bar,
                 const float* weights, const float* const* q_rows, const float* const* y_rows, const NodeSums& k_sums,
                 const NodeSums& v_sums) {
  const AttentionParams& p = call.p;
  float *k_rows[kKeyBlock], *v_rows[kKeyBlock];
  HWY_ALIGN float scales[kKeyBlock], ones[kKeyBlock];
  for (int64_t j = 0; j < keys.count; ++j) {
    const WalkNode& node = p.walk.nodes[first + j];
    k_rows[j] = k_sums.at(node, g), v_rows[j] = v_sums.at(node, g);
    scales[j] = p.scale, ones[j] = 1;
  }
  Combination combination;
  combination.adds = true;
  combination.row_step = kLanes;
  combination.num_terms = keys.lane_end - keys.lane_begin;
  combination.a = s_bar + keys.lane_begin, combination.terms = q_rows + keys.lane_begin;
  combination.row_scale = scales;
  combine_rows(combination, keys.count, in_lanes(p.dim), k_rows);
  combination.a = weights + keys.lane_begin, combination.terms = y_rows + keys.lane_begin;
  combination.row_scale = ones;
  combine_rows(combination, keys.count, in_lanes(p.value_dim), v_rows);
}

// Gradients of positions from one block: of the keys, and of the lanes' ancestors among their siblings.
void add_to_positions(const Call& call, const LeafTile& tile, const WalkNode& family, const KeyBlock& keys,
                      int64_t first, int64_t h, float* s_bar, const float* const* position_rows, Scratch& s) {
  const AttentionParams& p = call.p;
  const int64_t width = call.position_dim, channels = in_lanes(p.position_dim);
  for (int64_t j = 0; j < keys.count; ++j) {
    if (keys.self_lane[j] < 0) continue;
    float& self = s_bar[j * kLanes + keys.self_lane[j]];
    const int64_t leaf = p.walk.nodes[first + j].first_leaf;
    const float* own = position_row(call, p.self_position[leaf], h, s.products, s);
    float* to = call.grad_self_positions + (leaf * p.heads + h) * width;
    for (int64_t c = 0; c < width; ++c) to[c] = 2 * self * own[c];
    self = 0;
  }
  float* rows[kKeyBlock];
  HWY_ALIGN float ones[kKeyBlock];
  const auto gradient = [&](int64_t n) { return call.grad_node_positions + (n * p.heads + h) * width; };
  for (int64_t j = 0; j < keys.count; ++j) rows[j] = gradient(first + j), ones[j] = 1;
  Combination combination;
  combination.adds = true;
  combination.a = s_bar + keys.lane_begin, combination.row_step = kLanes;
  combination.terms = position_rows + keys.lane_begin, combination.num_terms = keys.lane_end - keys.lane_begin;
  combination.row_scale = ones;
  combine_rows(combination, keys.count, channels, rows);
  combination.row_step = 1, combination.term_step = kLanes;
  combination.terms = keys.position, combination.num_terms = keys.count;
  for (int64_t l = keys.lane_begin; l < keys.lane_end; ++l) {
    float* row = gradient(child_above(call, family, tile.first + l));
    combination.a = s_bar + l;
    combine_rows(combination, 1, channels, &row);
  }
}

V load_leaves(const float* values, const Call& call, const LeafTile& tile, int64_t h) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t l = 0; l < tile.count; ++l) lanes[l] = values[(tile.first + l) * call.p.heads + h];
  return hn::Load(F(), lanes);
}
V load_slopes(const Call& call, const LeafTile& tile, int64_t h) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t l = 0; l < tile.count; ++l) lanes[l] = slope_of(call, tile.first + l, h);
  return hn::Load(F(), lanes);
}

void untied_backward_queries_impl(const Call& call, const LeafRun& run, HeadRange range, Scratch& s) {
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
    for (int64_t g = range.key_begin; g < range.key_end; ++g) {
      std::fill_n(k_sums.at(leaf, g), channels, 0.0f);
      std::fill_n(v_sums.at(leaf, g), in_lanes(p.value_dim), 0.0f);
    }
  }
  for (int64_t i = 0; i < run.count; i += kLanes) {
    const LeafTile tile = {run.first_leaf + i, std::min(kLanes, run.count - i)};
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
          weigh_block(call, queries, s.y_columns, keys, log_sum, weights, products);
          for (int64_t j = 0; j < keys.count; ++j) {
            const V weight = hn::Load(f, weights + j * kLanes);
            const V part = hn::Mul(weight, hn::Load(f, products + j * kLanes));
            dot = hn::Add(dot, hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(f)), part));
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
          combination.adds = true;
          combination.a = s.scores + lane_begin, combination.term_step = kLanes;
          combination.terms = keys.k, combination.num_terms = keys.count;
          combination.row_scale = scales;
          combine_rows(combination, lane_end - lane_begin, channels, gradients + lane_begin);
          if (family.is_crown()) return;
          add_to_keys(call, keys, first, h / call.group, s.scores, weights, q_rows, y_rows, k_sums, v_sums);
          if (call.position_dim > 0) add_to_positions(call, tile, family, keys, first, h, s.scores, position_rows, s);
        });
      });
      for (int64_t l = 0; l < tile.count; ++l) grad_q.finish(tile.first + l, h, gradients[l]);
    }
  }
}

void untied_backward_keys_impl(const Call& call, int64_t n, HeadRange range, Scratch& s) {
  const AttentionParams& p = call.p;
  const WalkNode& family = p.walk.nodes[n];
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const NodeSums k_sums = key_sums(call), v_sums = value_sums(call);
  KeyBlock keys;
  const float *q_rows[kLanes], *y_rows[kLanes], *position_rows[kLanes];
  for (int64_t h = range.key_begin * call.group; h < range.key_end * call.group; ++h) {
    for (int64_t i = 0; i < family.size; i += kLanes) {
      const LeafTile tile = {family.first_leaf + i, std::min(kLanes, family.size - i)};
      gather_tile(q, tile, h, call.dim, s.staged[0], s, q_rows, s.columns);
      gather_tile(grad_out, tile, h, call.value_dim, s.staged[3], s, y_rows, s.y_columns);
      const V log_sum = load_leaves(call.log_sums, call, tile, h), slope = load_slopes(call, tile, h);
      const V dot = load_leaves(call.leaf_dots, call, tile, h);
      const QueryTile queries = {s.columns, s.position_columns};
      if (call.position_dim > 0) interleave_positions(call, tile, family, 0, tile.count, h, s, position_rows);
      for_each_block(call, tile, family, 0, tile.count, h, s, keys, [&](int64_t first) {
        HWY_ALIGN float s_bar[kKeyBlock * kLanes];
        weigh_block(call, queries, s.y_columns, keys, log_sum, s.scores, s.products);
        adjoint_of_block(keys, dot, slope, s.scores, s.products, s_bar);
        add_to_keys(call, keys, first, h / call.group, s_bar, s.scores, q_rows, y_rows, k_sums, v_sums);
        if (call.position_dim > 0) add_to_positions(call, tile, family, keys, first, h, s_bar, position_rows, s);
      });
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
        for (int64_t i = 0; i < channels; i += kLanes) {
          hn::StoreU(hn::MulAdd(hn::LoadU(f, row + i), share, hn::LoadU(f, above + i)), f, row + i);
        }
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
RAMIFY_CPU_STEP(untied_backward_queries, const LeafRun&)
RAMIFY_CPU_STEP(untied_backward_keys, int64_t)
RAMIFY_CPU_STEP(untied_share, int64_t)
RAMIFY_CPU_STEP(untied_share_grove, const Grove&)

}  // namespace ramify::cpu
#endif
