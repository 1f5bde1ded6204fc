// One family: its children's rows, its scores and its softmax over siblings (docs/algorithm.md, section 2).
#if defined(RAMIFY_CPU_SIMD_FAMILY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_FAMILY_INL_H_
#undef RAMIFY_CPU_SIMD_FAMILY_INL_H_
#else
#define RAMIFY_CPU_SIMD_FAMILY_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/simd/combine-inl.h"
#include "kernels/cpu/simd/dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// Rows at least so many leaves further on are brought nearer: far enough to be there in time, and not so far that they
// have to leave the second-level cache again.
inline constexpr int64_t kLeavesAhead = 16;

// Whether products can read and write these 16-bit rows as they are.
inline bool can_convert(const Source& source) {
  const bool is_half =
      source.storage == Storage::bfloat16 || (source.storage == Storage::float16 && streams_halves<Float16Lanes>);
  return is_half && source.dim % kChannelStep == 0;
}

// Whether all below a node is done as one family of leaves with lanes of its own (twig-inl.h): subtrees that fit into
// them, and families of leaves whose lanes two heads can share without leaving more idle.
inline bool is_twig(const Call& call, const WalkNode& node) {
  if (node.is_leaf() || node.size > std::min(kLanes, kTwigLeaves) || call.position_dim != 0) return false;
  return node.has_families_below() || (4 * node.size > kLanes && 2 * node.size <= kLanes);
}
inline bool is_inside_twig(const Call& call, const WalkNode& node) {
  return node.parent >= 0 && is_twig(call, call.p.walk.nodes[node.parent]);
}

// What all heads of a narrow family share, or of a twig: its children are its leaves.
struct Family {
  const WalkNode* node;
  int64_t last_ahead = -1;  // the last leaf of which rows are brought nearer
  int64_t leaves_ahead = kLeavesAhead;
  int64_t first = 0;  // first child; a twig's are not looked at
  int64_t count = 0;
  bool all_leaves = true;
  bool is_twig = false;
  bool is_pair = false;  // of two that see only each other
  bool streams = false;  // weights go past the cache: they will be read much later
  bool is_causal = false;
  bool is_closed = false;                // some child may not look at itself
  int64_t leaf[kNarrowFamily];           // of a child that is one, else -1
  int64_t slot[kNarrowFamily];           // of an inner child
  HWY_ALIGN float sizes[kNarrowFamily];  // leaves below
  HWY_ALIGN float log_sizes[kNarrowFamily];
  HWY_ALIGN float closed[kNarrowFamily];  // 1: the child does not look at itself

  Family(const Call& call, int64_t n, HeadRange heads)
      : node(&call.p.walk.nodes[n]), is_causal(call.p.causal != Causal::none) {
    first = node->first_child, count = node->num_children;
    is_twig = cpu::HWY_NAMESPACE::is_twig(call, *node);
    all_leaves = is_twig || !node->has_families_below();
    if (all_leaves) {
      take_leaves(call);
    } else {
      take_children(call);
    }
    is_closed = !(all_leaves && call.p.include_self);
    is_pair = count == 2 && !is_causal && closed[0] != 0 && closed[1] != 0;
    streams = call.streams && node->weights * call.p.heads % kRowPad == 0;
    const bool walks_all_heads = heads.key_end - heads.key_begin == call.p.key_heads;
    if (all_leaves && walks_all_heads) last_ahead = static_cast<int64_t>(call.p.walk.leaf_nodes.size()) - 1;
  }

  void take_children(const Call& call) {
    for (int64_t j = 0; j < count; ++j) {
      const WalkNode& child = call.p.walk.nodes[first + j];
      const bool is_leaf = child.is_leaf();
      leaf[j] = is_leaf ? child.first_leaf : -1;
      slot[j] = child.slot;
      sizes[j] = static_cast<float>(child.size);
      log_sizes[j] = is_leaf ? 0.0f : j > 0 && sizes[j] == sizes[j - 1] ? log_sizes[j - 1] : std::log(sizes[j]);
      closed[j] = is_leaf && call.p.include_self ? 0.0f : 1.0f;
    }
  }
  void take_leaves(const Call& call) {  // they are neighbours
    count = node->size;
    const float is_closed_to_itself = call.p.include_self ? 0.0f : 1.0f;
    for (int64_t j = 0; j < count; ++j) leaf[j] = node->first_leaf + j;
    std::fill_n(sizes, count, 1.0f);
    std::fill_n(log_sizes, count, 0.0f);
    std::fill_n(closed, count, is_closed_to_itself);
  }

  bool is_root() const { return node->parent < 0; }
  // Whether some child does not see some other, or itself.
  bool hides() const { return is_causal || is_closed; }
  // One head's part of an array of weights: [b][b], what is looked at first.
  float* weights_of(const Call& call, float* weights, int64_t head) const {
    return weights + (node->weights * call.p.heads + head * count * count);
  }
  const float* weights() const { return all_leaves ? nullptr : sizes; }

  // The rows of all children for one head: of the tensor for leaves, of `inner` [slots][heads][width] for the rest.
  HWY_INLINE void gather(const Source& source, int64_t head, const float* inner, int64_t heads, int64_t width,
                         float* copies, const float** rows) const {
    if (all_leaves) {  // neighbours
      const char* row = source.at(leaf[0], head);
      const int64_t stride = source.is_direct ? source.row_bytes() : width * static_cast<int64_t>(sizeof(float));
      if (!source.is_direct) {
        widen_rows(source.storage, row, source.row_bytes(), count, source.dim, copies, width);
        row = reinterpret_cast<const char*>(copies);
      }
      for (int64_t j = 0; j < count; ++j, row += stride) rows[j] = reinterpret_cast<const float*>(row);
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      rows[j] =
          leaf[j] >= 0 ? source.read(leaf[j], head, copies + j * width) : inner + (slot[j] * heads + head) * width;
    }
  }
  // The same, but rows stay what they are where `takes_halves` and they can be converted as they are read. Returns what
  // they are.
  HWY_INLINE Storage gather(const Source& source, int64_t head, const float* inner, int64_t heads, int64_t width,
                            float* copies, const float** rows, bool takes_halves) const {
    if (!takes_halves || !all_leaves || !can_convert(source)) {
      gather(source, head, inner, heads, width, copies, rows);
      return Storage::float32;
    }
    const char* row = source.at(leaf[0], head);
    for (int64_t j = 0; j < count; ++j, row += source.row_bytes()) rows[j] = reinterpret_cast<const float*>(row);
    return source.storage;
  }
  HWY_INLINE void gather_targets(const Target& target, int64_t head, float* inner, int64_t heads, int64_t width,
                                 float* copies, float** rows) const {
    if (all_leaves && target.is_direct) {
      float* row = target.row(leaf[0], head, nullptr);
      for (int64_t j = 0; j < count; ++j, row += target.rows.row_stride) rows[j] = row;
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      rows[j] = leaf[j] >= 0 ? target.row(leaf[j], head, copies + j * width) : inner + (slot[j] * heads + head) * width;
    }
  }
  // Whether combine_rows takes terms of 16 bits, and score_rows rows on the left.
  bool takes_half_terms() const { return count % kRowTile == 0; }
  bool takes_half_queries() const { return kInterleavesHalves && count == kLanes && !is_root(); }
  // The rows of all children where they can be narrowed as they are computed: then they need no copies.
  HWY_INLINE HalfRows half_targets(const Target& target, int64_t head) const {
    if (!all_leaves || !can_convert(target)) return {};
    return {reinterpret_cast<uint16_t*>(const_cast<char*>(target.at(leaf[0], head))), target.rows.row_stride,
            target.storage};
  }
  HWY_INLINE void finish_targets(const Target& target, int64_t head, float* const* rows, bool past_cache) const {
    if (target.is_direct) return;
    if (all_leaves) {
      narrow_rows(target.storage, rows[0], count > 1 ? rows[1] - rows[0] : 0, count, target.dim,
                  const_cast<char*>(target.at(leaf[0], head)), target.row_bytes(), past_cache);
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      if (leaf[j] >= 0) target.finish(leaf[j], head, rows[j]);
    }
  }
  // What the loops over `head` of this family bring nearer of leaves to come: a part as large as the head's, in the
  // order of memory, so that all heads together bring as many rows as they use. Nothing where only some heads are
  // walked.
  HWY_INLINE Ahead look_ahead(const Source& source, int64_t head, int64_t heads = 1) const {
    const int64_t row = leaf[0] + std::max(count, leaves_ahead);
    if (row + count - 1 > last_ahead) return {};
    const int64_t part = count * source.head_bytes();
    const char* begin = source.at(row, 0) + head * part;
    const Ahead ahead(begin, begin + heads * part);
    ahead.open_pages();
    return ahead;
  }
  // The same of numbers that lie as weights do: those of the next family, if it is as large as this.
  HWY_INLINE Ahead look_ahead(const Call& call, const float* weights, int64_t head, int64_t heads = 1) const {
    const int64_t part = count * count, begin = (node->weights + part) * call.p.heads + head * part;
    if (last_ahead < 0 || begin + heads * part > call.p.walk.totals.weights * call.p.heads) return {};
    const char* at = reinterpret_cast<const char*>(weights + begin);
    return {at, at + heads * part * static_cast<int64_t>(sizeof(float))};
  }
};

// Row of the table of positions, or zeros.
inline const float* position_row(const Call& call, int64_t index, int64_t head, float* copy, const Scratch& s) {
  if (index < 0) return s.zeros;
  return Source(call.p.positions, call.p.storage, call.p.position_dim).read(index, head, copy);
}

// Position rows of all children towards their siblings.
inline void gather_positions(const Call& call, const Family& family, int64_t head, Scratch& s, const float** rows) {
  for (int64_t j = 0; j < family.count; ++j) {
    rows[j] =
        position_row(call, call.p.node_position[family.first + j], head, s.staged_positions + j * call.position_dim, s);
  }
}

// Whether child j's position towards itself is not the one it has towards its siblings: it stands for a chain.
HWY_INLINE bool has_own_position(const Call& call, const Family& family, int64_t j) {
  return family.closed[j] == 0 && call.p.self_position[family.leaf[j]] != call.p.node_position[family.first + j];
}

// What rows that are read for their scores are pooled to, as pool_rows does it.
struct Pooling {
  const float* weights = nullptr;  // null: ones
  float scale = 1;
  float* to = nullptr;                 // null: they are not
  Storage storage = Storage::float32;  // what pointers to them really lead to
};

// Products of all rows of `left` with all rows of `right`: to[j][i] = scale left[i] · right[j], rows of kNarrowFamily.
template <class Prefetch>
HWY_INLINE void score_rows(const float* const* left, const float* const* right, int64_t count, int64_t channels,
                           float scale, bool add, Scratch& s, float* to, Prefetch& ahead, Pooling pooling = {}) {
  if (pooling.to && count == kLanes && !pooling.weights) {  // all of them at once, so that they are read once
    with_lanes(pooling.storage, [&](auto lanes) {
      using Lanes = decltype(lanes);
      if constexpr (std::is_same_v<Lanes, Float32Lanes> || kInterleavesHalves) {
        interleave_rows<Lanes>(left, channels, s.columns, {pooling.scale, pooling.to});
      }
    });
    dot_blocks(s.columns, right, count, channels, scale, to, kNarrowFamily, ahead);
    return;
  }
  if (pooling.to) pool_rows(left, pooling.weights, count, pooling.scale, channels, pooling.to);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t rows = std::min(count - i, kLanes);
    if (add || 2 * rows <= kLanes) {
      dot_few(left + i, rows, right, count, channels, scale, add, to + i, kNarrowFamily);
      for (int64_t j = 0; j < count; ++j) ahead.template step<4>();  // few, so at once
      continue;
    }
    interleave_tile(left + i, rows, channels, s.zeros, s.columns);
    dot_blocks(s.columns, right, count, channels, scale, to + i, kNarrowFamily, ahead);
  }
}

// scale q(C)·k(B) + ε(C)·ε(B) of one head into scratch.scores; sizes and masks come with the softmax.
HWY_INLINE void score_family(const Call& call, const Family& family, int64_t head, const float* const* q,
                             const float* const* k, Pooling of_q, Scratch& s, BothAhead& ahead) {
  score_rows(q, k, family.count, in_lanes(call.p.dim), call.p.scale, /*add=*/false, s, s.scores, ahead, of_q);
  if (call.position_dim == 0) return;
  const float* positions[kNarrowFamily];
  gather_positions(call, family, head, s, positions);
  const int64_t channels = in_lanes(call.p.position_dim);
  score_rows(positions, positions, family.count, channels, 1.0f, /*add=*/true, s, s.scores, ahead);
  for (int64_t j = 0; j < family.count; ++j) {
    if (!has_own_position(call, family, j)) continue;
    const float* own = position_row(call, call.p.self_position[family.leaf[j]], head, s.columns, s);
    s.scores[j * kNarrowFamily + j] += dot_row(own, own, channels) - dot_row(positions[j], positions[j], channels);
  }
}

inline V look_at_each_other(const Family& family, const float* scores, float* weights) {
  const F f;
  HWY_ALIGN float g[kLanes] = {};
  weights[0] = weights[3] = 0;
  weights[1] = weights[2] = 1;
  g[0] = scores[kNarrowFamily] + family.log_sizes[1];
  g[1] = scores[1] + family.log_sizes[0];
  return hn::Load(f, g);
}

// Weights of queries whose scores are NaN: 0 where they do not look. A score of -inf less NaN is not -inf any more.
inline void hide_weights(const Family& family, int64_t i, float* weights) {
  const F f;
  const V query = hn::Iota(f, static_cast<float>(i));
  const int64_t rest = family.count - i;
  for (int64_t j = 0; j < family.count; ++j, weights += family.count) {
    const V sibling = hn::Set(f, static_cast<float>(j));
    V weight = load_first(weights, rest);
    if (family.is_causal) weight = hn::IfThenZeroElse(hn::Lt(query, sibling), weight);
    if (family.closed[j] != 0) weight = hn::IfThenZeroElse(hn::Eq(query, sibling), weight);
    store_first(weight, weights, rest);
  }
}

// Softmax over siblings j for queries [i, i + kLanes): weights[j * count + lane] = p, and g is returned. Nothing to
// look at gives p = 0 and g = -inf.
// In a family of two that do not see themselves each sees the other, with weight 1, whatever the scores.
inline V softmax_tile(const Family& family, int64_t i, float* scores, float* weights, Ahead& shared_ahead) {
  if (family.is_pair) {
    shared_ahead.step<4>();
    shared_ahead.step<4>();
    return look_at_each_other(family, scores, weights);
  }
  Ahead ahead = shared_ahead;
  const F f;
  const int64_t count = family.count, rest = count - i;
  const V lane = hn::Iota(f, 0), closed = hn::Set(f, kMinusInfinity), one = hn::Set(f, 1.0f);
  V most = closed, place = hn::Set(f, static_cast<float>(-i));  // of sibling j among the lanes
  for (int64_t j = 0; j < count; ++j, place = hn::Add(place, one)) {
    V score = hn::Add(hn::Load(f, scores + j * kNarrowFamily), hn::Set(f, family.log_sizes[j]));
    if (family.is_causal) score = hn::IfThenElse(hn::Lt(lane, place), closed, score);
    if (family.is_closed && family.closed[j] != 0) {
      score = hn::IfThenElse(hn::Eq(lane, place), closed, score);
    }
    most = hn::Max(most, score);
    hn::Store(score, f, scores + j * kNarrowFamily);
    ahead.step<1>();
  }
  const V shift = hn::IfThenElse(hn::Eq(most, closed), hn::Zero(f), most);
  V sum = hn::Zero(f);
  for (int64_t j = 0; j < count; ++j) {
    const V weight = exp_lanes(hn::Sub(hn::Load(f, scores + j * kNarrowFamily), shift));
    sum = hn::Add(sum, weight);
    hn::Store(weight, f, scores + j * kNarrowFamily);
    ahead.step<2>();
  }
  const M is_empty = hn::Eq(sum, hn::Zero(f));
  const V inverse = hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), sum));
  const bool streams = family.streams && count % kLanes == 0;
  for (int64_t j = 0; j < count; ++j) {
    const V weight = hn::Mul(hn::Load(f, scores + j * kNarrowFamily), inverse);
    ahead.step<1>();
    if (streams) {
      hn::Stream(weight, f, weights + j * count);
    } else {
      store_first(weight, weights + j * count, rest);
    }
  }
  if (HWY_UNLIKELY(!hn::AllTrue(f, hn::Eq(sum, sum)))) hide_weights(family, i, weights);
  return hn::IfThenElse(is_empty, closed, hn::Add(shift, log_lanes(sum)));
}

// t = logaddexp(e, g), m and w of queries that may be inner nodes.
struct Gates {
  V t, m, w;
};
HWY_INLINE Gates gates_of(V e, V g) {
  const F f;
  const V nothing = hn::Set(f, kMinusInfinity);
  const V most = hn::Max(e, g);
  // of each, since the larger of NaN and a number may be the number
  const M is_empty = hn::And(hn::Eq(e, nothing), hn::Eq(g, nothing));
  const V shift = hn::IfThenZeroElse(is_empty, most);
  const V inside = exp_lanes(hn::Sub(e, shift)), outside = exp_lanes(hn::Sub(g, shift));
  const V total = hn::Add(inside, outside);
  const V inverse = hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), total));
  return {hn::IfThenElse(is_empty, most, hn::Add(shift, log_lanes(total))), hn::Mul(inside, inverse),
          hn::Mul(outside, inverse)};
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
