// A wide family as all its passes see it: where its children's rows are, tiles of them as queries and as keys.
#if defined(RAMIFY_CPU_SIMD_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_WIDE_INL_H_
#undef RAMIFY_CPU_SIMD_WIDE_INL_H_
#else
#define RAMIFY_CPU_SIMD_WIDE_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/simd/family-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/wide_family.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// The children of a wide node and where their rows are: in the tensors, or in the crown.
struct WideFamily {
  const Call& call;
  const WalkNode& node;
  bool is_root;

  WideFamily(const Call& c, int64_t n) : call(c), node(c.p.walk.nodes[n]), is_root(c.p.walk.nodes[n].parent < 0) {}

  int64_t count() const { return node.num_children; }
  int64_t tile_begin(int64_t tile) const { return tile * wide_tile_size(node); }
  int64_t tile_size(int64_t tile) const { return std::min(count() - tile_begin(tile), wide_tile_size(node)); }
  const WalkNode& child(int64_t j) const { return call.p.walk.nodes[node.first_child + j]; }
  int64_t member(int64_t j, int64_t head) const { return (node.weights + j) * call.p.heads + head; }
  bool sees_itself(int64_t j) const { return call.p.include_self && child(j).is_leaf(); }

  const float* read(const Source& source, int64_t j, int64_t head, int64_t heads, const float* inner, int64_t width,
                    float* copy) const {
    const WalkNode& c = child(j);
    return c.is_leaf() ? source.read(c.first_leaf, head, copy) : inner + (c.slot * heads + head) * width;
  }
  float* target(const Target& tensor, int64_t j, int64_t head, int64_t heads, float* inner, int64_t width,
                float* copy) const {
    const WalkNode& c = child(j);
    return c.is_leaf() ? tensor.row(c.first_leaf, head, copy) : inner + (c.slot * heads + head) * width;
  }
  void finish(const Target& tensor, int64_t j, int64_t head, const float* row) const {
    if (child(j).is_leaf()) tensor.finish(child(j).first_leaf, head, row);
  }
  // A copy among its neighbours: rows of a tensor lie so that many of them would share few sets of the first-level
  // cache.
  const float* copy(const Source& source, int64_t j, int64_t head, int64_t heads, const float* inner, int64_t width,
                    float* to) const {
    const WalkNode& c = child(j);
    if (c.is_leaf()) {
      widen_rows(source.storage, source.at(c.first_leaf, head), 0, 1, source.dim, to, 0);
    } else {
      std::copy_n(inner + (c.slot * heads + head) * width, width, to);
    }
    return to;
  }
  const float* position(int64_t j, int64_t head, float* copy, const Scratch& s) const {
    return position_row(call, call.p.node_position[node.first_child + j], head, copy, s);
  }
  const float* own_position(int64_t j, int64_t head, float* copy, const Scratch& s) const {
    return position_row(call, call.p.self_position[child(j).first_leaf], head, copy, s);
  }
  bool has_own_position(int64_t j) const {
    return call.position_dim > 0 && sees_itself(j) &&
           call.p.self_position[child(j).first_leaf] != call.p.node_position[node.first_child + j];
  }
};

// A tile's children as queries of one head; their rows also as columns, a block of kKeyBlock after the other.
struct Queries {
  int64_t begin = 0, count = 0;
  const float* q[kWideTile];
  const float* y[kWideTile];  // backward: grad_out
  const float* position[kWideTile];

  int64_t block_size(int64_t first) const { return std::min(count - first, kKeyBlock); }
};

// `count` of its rows, and zeros for the rest of the lanes.
inline void turn_rows(const float* const* rows, int64_t first, int64_t count, int64_t channels, const float* zeros,
                      float* columns) {
  const float* lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = l < count ? rows[first + l] : zeros;
  const int64_t block = first / kKeyBlock, place = first % kKeyBlock;
  transpose_rows(lanes, channels, columns + block * kKeyBlock * channels + place, kKeyBlock);
}

inline void gather_queries(const WideFamily& family, int64_t tile, int64_t h, Pass pass, Scratch& s, Queries& queries) {
  const Call& call = family.call;
  const AttentionParams& p = call.p;
  const WideScratch& wide = s.wide;
  const Source q(p.q, p.storage, p.dim), grad_out(call.grad_out, p.storage, p.value_dim);
  const int64_t begin = family.tile_begin(tile), count = family.tile_size(tile);
  queries.begin = begin, queries.count = count;
  for (int64_t i = 0; i < count; ++i) {
    queries.q[i] = family.copy(q, begin + i, h, p.heads, call.crown.q, call.dim, wide.q + i * call.dim);
    if (call.position_dim > 0) {
      queries.position[i] = family.position(begin + i, h, wide.positions + i * call.position_dim, s);
    }
    if (pass == Pass::forward) continue;
    queries.y[i] =
        family.copy(grad_out, begin + i, h, p.heads, call.crown.y, call.value_dim, wide.y + i * call.value_dim);
  }
  for (int64_t first = 0; first < count; first += kLanes) {
    const int64_t lanes = std::min(kLanes, count - first);
    turn_rows(queries.q, first, lanes, in_lanes(p.dim), s.zeros, wide.q_columns);
    if (call.position_dim > 0) {
      interleave_tile(queries.position + first, lanes, in_lanes(p.position_dim), s.zeros,
                      wide.position_columns + first * call.position_dim);
    }
    if (pass == Pass::forward) continue;
    turn_rows(queries.y, first, lanes, in_lanes(p.value_dim), s.zeros, wide.y_columns);
  }
}

// Products of a block of keys, neighbouring rows, and a block of queries in columns: to[key][query], rows of kKeyBlock.
// A key's channels are weights of the columns, which is faster than dot_blocks where there are this many queries.
inline void multiply_block(const float* keys, int64_t width, int64_t num_keys, const float* columns,
                           int64_t num_queries, int64_t channels, float scale, float* to) {
  const float* terms[kMaxDim];
  float* rows[kKeyBlock];
  HWY_ALIGN float scales[kKeyBlock];
  for (int64_t c = 0; c < channels; ++c) terms[c] = columns + c * kKeyBlock;
  for (int64_t j = 0; j < num_keys; ++j) rows[j] = to + j * kKeyBlock, scales[j] = scale;
  Combination product;
  product.a = keys, product.row_step = width;
  product.terms = terms, product.num_terms = channels;
  product.row_scale = scales;
  combine_rows(product, num_keys, in_lanes(num_queries), rows);
}

// Children [begin, begin + count) as keys.
inline void gather_keys(const WideFamily& family, int64_t begin, int64_t count, int64_t h, Scratch& s, KeyBlock& keys) {
  const Call& call = family.call;
  const AttentionParams& p = call.p;
  const Source k(p.k, p.storage, p.dim), v(p.v, p.storage, p.value_dim);
  const int64_t g = h / call.group;
  keys.count = count, keys.has_sizes = false;
  for (int64_t j = 0; j < count; ++j) {
    keys.k[j] = family.copy(k, begin + j, g, p.key_heads, call.crown.k, call.dim, s.staged[1] + j * call.dim);
    keys.v[j] =
        family.copy(v, begin + j, g, p.key_heads, call.crown.v, call.value_dim, s.staged[2] + j * call.value_dim);
    const WalkNode& child = family.child(begin + j);
    keys.has_sizes |= !child.is_leaf();
    keys.log_size[j] = child.is_leaf() ? 0.0f : std::log(static_cast<float>(child.size));
    if (call.position_dim == 0) continue;
    keys.position[j] = family.position(begin + j, h, s.staged_positions + j * call.position_dim, s);
    keys.self_difference[j] = 0;
    if (!family.has_own_position(begin + j)) continue;
    const int64_t channels = in_lanes(p.position_dim);
    HWY_ALIGN float copy[kMaxPositionDim];
    const float* own = family.own_position(begin + j, h, copy, s);
    keys.self_difference[j] = dot_row(own, own, channels) - dot_row(keys.position[j], keys.position[j], channels);
  }
}

// Who sees whom, for the tile whose first query is child `first`.
inline void mask_keys(const WideFamily& family, int64_t begin, int64_t first, int64_t lanes, KeyBlock& keys) {
  const bool is_causal = family.call.p.causal != Causal::none;
  keys.lane_begin = 0, keys.lane_end = lanes;
  keys.is_plain = !is_causal && lanes == kLanes && (begin >= first + lanes || begin + keys.count <= first);
  if (keys.is_plain && family.call.position_dim == 0) return;
  for (int64_t j = 0; j < keys.count; ++j) {
    const auto place = static_cast<float>(begin + j - first);
    const bool is_self_seen = family.sees_itself(begin + j);
    keys.visible_from[j] = is_causal ? place : -1.0f;
    keys.hidden_begin[j] = place;
    keys.hidden_end[j] = is_self_seen ? place : place + 1;
    const int64_t lane = begin + j - first;
    keys.self_lane[j] = is_self_seen && lane >= 0 && lane < lanes ? lane : -1;
  }
}

// Whether some of the queries up to child `end` see a key from child `begin` on.
inline bool may_see(const WideFamily& family, int64_t end, int64_t begin) {
  return family.call.p.causal == Causal::none || begin < end;
}

// Adds the rows of all children, each times its size, and divides by the parent's.
inline void pool_children(const WideFamily& family, const Source& source, int64_t head, int64_t heads, int64_t width,
                          const float* inner, bool by_size, float* copies, float* to) {
  const F f;
  const int64_t channels = in_lanes(source.dim);
  std::fill_n(to, width, 0.0f);
  for (int64_t j = 0; j < family.count(); ++j) {
    const float* row = family.read(source, j, head, heads, inner, width, copies);
    const V weight = hn::Set(f, by_size ? static_cast<float>(family.child(j).size) : 1.0f);
    for_each_vector(channels, [&](RowPart part) { part.store(hn::MulAdd(part.load(row), weight, part.load(to)), to); });
  }
  const V scale = hn::Set(f, by_size ? 1.0f / static_cast<float>(family.node.size) : 1.0f);
  for_each_vector(channels, [&](RowPart part) { part.store(hn::Mul(part.load(to), scale), to); });
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
