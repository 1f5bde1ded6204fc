// Leaves as queries of their own: tiles of them, the families above them, and rows of nodes that are leaves or means.
#if defined(RAMIFY_CPU_SIMD_LEAVES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_LEAVES_INL_H_
#undef RAMIFY_CPU_SIMD_LEAVES_INL_H_
#else
#define RAMIFY_CPU_SIMD_LEAVES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/family-inl.h"
#include "kernels/cpu/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// Where rows of nodes are: leaves in the tensor, inner nodes among the means.
struct NodeSource {
  Source leaves;
  const float* means;
  int64_t heads, width;

  const float* read(const WalkNode& node, int64_t head, float* copy) const {
    return node.is_leaf() ? leaves.read(node.first_leaf, head, copy) : means + (node.inner * heads + head) * width;
  }
};

inline NodeSource keys_of(const Call& call) {
  return {Source(call.p.k, call.p.storage, call.p.dim), call.mean_k, call.p.key_heads, call.dim};
}
inline NodeSource values_of(const Call& call) {
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

inline NodeSums key_sums(const Call& call) {
  const AttentionParams& p = call.p;
  return {Target(call.grad_k, p.storage, p.dim),
          sums_in_place(p, p.dim),
          call.leaf_grad_k,
          call.grad_mean_k,
          p.key_heads,
          call.dim};
}
inline NodeSums value_sums(const Call& call) {
  const AttentionParams& p = call.p;
  return {Target(call.grad_v, p.storage, p.value_dim),
          sums_in_place(p, p.value_dim),
          call.leaf_grad_v,
          call.grad_mean_v,
          p.key_heads,
          call.value_dim};
}

inline void pool_node(const Call& call, const NodeSource& source, const WalkNode& node, int64_t head, float* copies,
                      float* to) {
  const float scale = 1.0f / static_cast<float>(node.size);
  const int64_t channels = in_lanes(source.leaves.dim);
  const float* rows[kKeyBlock];
  float sizes[kKeyBlock];
  HWY_ALIGN float more[kMaxDim];
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
    pool_rows(rows, sizes, count, scale, channels, more);
    for_each_vector(channels, [&](RowPart part) { part.store(hn::Add(part.load(to), part.load(more)), to); });
  }
}

// Leaves [first, first + count) as queries, and the families on their way up: visit(family, lane_begin, lane_end), each
// once, with the lanes below it.
struct LeafTile {
  int64_t first = 0, count = 0;
};
template <class Visit>
inline void for_each_family(const Call& call, const LeafTile& tile, const Visit& visit) {
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
inline int64_t child_above(const Call& call, const WalkNode& family, int64_t leaf) {
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
inline void interleave_positions(const Call& call, const LeafTile& tile, const WalkNode& family, int64_t lane_begin,
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

inline bool has_own_position(const Call& call, int64_t n) {
  const WalkNode& node = call.p.walk.nodes[n];
  return call.position_dim > 0 && call.p.include_self && node.is_leaf() &&
         call.p.self_position[node.first_leaf] != call.p.node_position[n];
}

// Rows of leaves to come, some heads of a few tensors, which are brought nearer in the order of memory, some lines
// between the products of a tile: more at once would keep its own reads waiting.
class LeavesAhead {
 public:
  void add(const Source& source, int64_t leaf, int64_t count, int64_t head_begin, int64_t head_end) {
    if (count <= 0) return;
    parts_[end_++] = {source.at(leaf, head_begin), source.at(leaf, head_end) - source.at(leaf, head_begin),
                      source.row_bytes(), count};
  }
  HWY_INLINE void bring(int64_t lines = 24) {
    for (int64_t l = 0; l < lines && part_ < end_; ++l) {
      Part& part = parts_[part_];
      __builtin_prefetch(part.row + offset_, 0, 2);
      if ((offset_ += 64) < part.width) continue;
      offset_ = 0, part.row += part.pitch;
      if (--part.rows == 0) ++part_;
    }
  }

 private:
  struct Part {
    const char* row;
    int64_t width, pitch, rows;
  };
  Part parts_[4];
  int part_ = 0, end_ = 0;
  int64_t offset_ = 0;
};

// Rows of leaves of a tensor, interleaved.
inline void gather_tile(const Source& source, const LeafTile& tile, int64_t h, int64_t width, float* copies,
                        const Scratch& s, const float** rows, float* blocks) {
  for (int64_t l = 0; l < tile.count; ++l) rows[l] = source.read(tile.first + l, h, copies + l * width);
  interleave_tile(rows, tile.count, in_lanes(source.dim), s.zeros, blocks);
}

inline V load_leaves(const float* values, const Call& call, const LeafTile& tile, int64_t h) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t l = 0; l < tile.count; ++l) lanes[l] = values[(tile.first + l) * call.p.heads + h];
  return hn::Load(F(), lanes);
}

// Children [begin, begin + count) of a family as keys of a tile.
inline void gather_keys(const Call& call, const LeafTile& tile, int64_t begin, int64_t count, int64_t h, Scratch& s,
                        KeyBlock& keys) {
  const AttentionParams& p = call.p;
  const NodeSource k = keys_of(call), v = values_of(call);
  const int64_t g = h / call.group;
  keys.count = count, keys.has_sizes = false;
  int64_t size = 1;
  float log_size = 0;  // of the last sibling's size: mostly the next one's, too
  for (int64_t j = 0; j < count; ++j) {
    const WalkNode& node = p.walk.nodes[begin + j];
    if (node.size != size) size = node.size, log_size = std::log(static_cast<float>(size));
    keys.k[j] = k.read(node, g, s.staged[1] + j * call.dim);
    keys.v[j] = v.read(node, g, s.staged[2] + j * call.value_dim);
    keys.has_sizes |= !node.is_leaf();
    keys.log_size[j] = log_size;
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

// Gradients of the keys of a block from the lanes that look at it: k̄ += scale s̄ q, v̄ += p ȳ.
inline void add_to_keys(const Call& call, const KeyBlock& keys, int64_t first, int64_t g, const float* s_bar,
                        const float* weights, const float* const* q_rows, const float* const* y_rows,
                        const NodeSums& k_sums, const NodeSums& v_sums) {
  const AttentionParams& p = call.p;
  float *k_rows[kKeyBlock], *v_rows[kKeyBlock];
  HWY_ALIGN float scales[kKeyBlock], ones[kKeyBlock];
  for (int64_t j = 0; j < keys.count; ++j) {
    const WalkNode& node = p.walk.nodes[first + j];
    k_rows[j] = k_sums.at(node, g), v_rows[j] = v_sums.at(node, g);
    scales[j] = p.scale, ones[j] = 1;
  }
  Combination combination;
  combination.adds = combination.hides = true;
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
inline void add_to_positions(const Call& call, const LeafTile& tile, const WalkNode& family, const KeyBlock& keys,
                             int64_t first, int64_t h, float* s_bar, const float* const* position_rows, Scratch& s) {
  const AttentionParams& p = call.p;
  const int64_t width = call.position_dim, channels = in_lanes(p.position_dim);
  for (int64_t j = 0; j < keys.count; ++j) {
    if (keys.self_lane[j] < 0) continue;
    float& self = s_bar[j * kLanes + keys.self_lane[j]];
    const int64_t leaf = p.walk.nodes[first + j].first_leaf;
    const float* own = position_row(call, p.self_position[leaf], h, s.products, s);
    float* to = call.grad_self_positions + (leaf * p.heads + h) * width;
    for (int64_t c = 0; c < p.position_dim; ++c) to[c] = 2 * self * own[c];
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

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
