// A tile of queries that sees blocks of keys one after the other, without ever holding all weights: for families too
// wide to keep them, and for untied queries, which see the families of all their ancestors.
#if defined(RAMIFY_CPU_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_TILE_INL_H_
#undef RAMIFY_CPU_SIMD_TILE_INL_H_
#else
#define RAMIFY_CPU_SIMD_TILE_INL_H_
#endif

#include "kernels/cpu/simd/combine-inl.h"
#include "kernels/cpu/simd/dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// Up to kKeyBlock nodes that queries of one tile look at. Lanes are numbered from the tile's first query.
struct KeyBlock {
  int64_t count = 0;
  int64_t lane_begin = 0, lane_end = 0;  // the lanes that look at all
  bool has_sizes = false;                // some key is not a leaf
  bool is_plain = false;                 // all lanes see all keys: the three arrays of masks need not be there
  const float* k[kKeyBlock];
  const float* v[kKeyBlock];
  const float* position[kKeyBlock];
  float log_size[kKeyBlock];
  // key j is seen from lane visible_from[j] on, but not from lanes [hidden_begin[j], hidden_end[j])
  float visible_from[kKeyBlock], hidden_begin[kKeyBlock], hidden_end[kKeyBlock];
  // a leaf that stands for a chain has another position towards itself: its self score differs by this
  int64_t self_lane[kKeyBlock];  // -1: none
  float self_difference[kKeyBlock];
};

// kLanes queries of one head, ready to be multiplied.
struct QueryTile {
  float* q_blocks;
  float* position_blocks;
};

// What makes products q · k of a block, to[j][lane] with rows `stride` apart, its scores: sizes and positions, and -inf
// where a lane does not see a key.
inline void complete_scores(const Call& call, const float* position_blocks, const KeyBlock& keys, float* to,
                            int64_t stride) {
  const F f;
  if (keys.is_plain && !keys.has_sizes && call.position_dim == 0) return;
  HWY_ALIGN float position_scores[kKeyBlock * kLanes];
  if (call.position_dim > 0) {
    dot_blocks(position_blocks, keys.position, keys.count, in_lanes(call.p.position_dim), 1.0f, position_scores,
               kLanes);
  }
  const V lane = hn::Iota(f, 0), hidden = hn::Set(f, kMinusInfinity);
  const V begin = hn::Set(f, static_cast<float>(keys.lane_begin)), end = hn::Set(f, static_cast<float>(keys.lane_end));
  const M looks = hn::And(hn::Ge(lane, begin), hn::Lt(lane, end));
  for (int64_t j = 0; j < keys.count; ++j) {
    V score = hn::Add(hn::Load(f, to + j * stride), hn::Set(f, keys.log_size[j]));
    if (call.position_dim > 0) score = hn::Add(score, hn::Load(f, position_scores + j * kLanes));
    if (keys.is_plain) {
      hn::Store(score, f, to + j * stride);
      continue;
    }
    const M is_hidden =
        hn::And(hn::Ge(lane, hn::Set(f, keys.hidden_begin[j])), hn::Lt(lane, hn::Set(f, keys.hidden_end[j])));
    const M sees = hn::AndNot(is_hidden, hn::And(looks, hn::Ge(lane, hn::Set(f, keys.visible_from[j]))));
    hn::Store(hn::IfThenElse(sees, score, hidden), f, to + j * stride);
    if (call.position_dim > 0 && keys.self_lane[j] >= 0) to[j * stride + keys.self_lane[j]] += keys.self_difference[j];
  }
}

// Scores of a block into to[j][lane].
inline void score_block(const Call& call, const QueryTile& tile, const KeyBlock& keys, float* to) {
  dot_blocks(tile.q_blocks, keys.k, keys.count, in_lanes(call.p.dim), call.p.scale, to, kLanes);
  complete_scores(call, tile.position_blocks, keys, to, kLanes);
}

// What a tile has seen so far: Σ exp(s - most) and Σ exp(s - most) v.
struct Seen {
  V most, sum;
  float* rows[kLanes];  // [padded value dim] each, zero at first

  // Written out: an implicit one would be compiled for no instruction set in particular.
  Seen() : most(hn::Set(F(), kMinusInfinity)), sum(hn::Zero(F())) {}
};

// Turns the scores of a block, rows `stride` apart, into weights exp(s - most), and shrinks what was seen before where
// the maximum rose.
inline void weigh_scores(const Call& call, const KeyBlock& keys, Seen& seen, float* scores, int64_t stride) {
  const F f;
  V most = seen.most;
  for (int64_t j = 0; j < keys.count; ++j) most = hn::Max(most, hn::Load(f, scores + j * stride));
  const V shift = hn::IfThenZeroElse(hn::Eq(most, hn::Set(f, kMinusInfinity)), most);
  V sum = hn::Zero(f);
  for (int64_t j = 0; j < keys.count; ++j) {
    const V weight = exp_of_score(hn::Load(f, scores + j * stride), shift);
    sum = hn::Add(sum, weight);
    hn::Store(weight, f, scores + j * stride);
  }
  HWY_ALIGN float factor[kLanes];
  const V shrink = exp_lanes(hn::Sub(seen.most, shift));
  hn::Store(shrink, f, factor);
  seen.sum = hn::MulAdd(seen.sum, shrink, sum);
  seen.most = most;
  for (int64_t l = keys.lane_begin; l < keys.lane_end; ++l) {
    if (factor[l] == 1.0f) continue;
    const V scale = hn::Set(f, factor[l]);
    float* row = seen.rows[l];
    const int64_t channels = in_lanes(call.p.value_dim);
    for_each_vector(channels, [&](RowPart part) { part.store(hn::Mul(part.load(row), scale), row); });
  }
}

// Adds a block of keys.
template <class Prefetch>
inline void see_block(const Call& call, const QueryTile& tile, const KeyBlock& keys, Seen& seen, float* scores,
                      Prefetch& ahead) {
  ahead.bring();
  score_block(call, tile, keys, scores);
  ahead.bring();
  weigh_scores(call, keys, seen, scores, kLanes);
  ahead.bring();
  const int64_t first = keys.lane_begin, rows = keys.lane_end - keys.lane_begin;
  HWY_ALIGN float ones[kLanes];
  hn::Store(hn::Set(F(), 1.0f), F(), ones);
  Combination combination;
  combination.a = scores + first, combination.term_step = kLanes;
  combination.terms = keys.v, combination.num_terms = keys.count;
  combination.row_scale = ones;
  combination.adds = combination.hides = true;
  combine_rows(combination, rows, in_lanes(call.p.value_dim), seen.rows + first);
}

// log Σ exp(s), -inf where nothing was seen; and 1 / Σ exp(s - most), 0 there.
struct Total {
  V log_sum, inverse;
};
HWY_INLINE Total total_of(const Seen& seen) {
  const F f;
  const M is_empty = hn::Eq(seen.sum, hn::Zero(f));
  return {hn::IfThenElse(is_empty, hn::Set(f, kMinusInfinity), hn::Add(seen.most, log_lanes(seen.sum))),
          hn::IfThenZeroElse(is_empty, hn::Div(hn::Set(f, 1.0f), seen.sum))};
}

// Backward: weights of a block, p = exp(s - log_sum), and products grad_out · v, both [key][lane].
template <class Prefetch>
inline void weigh_block(const Call& call, const QueryTile& tile, const float* y_blocks, const KeyBlock& keys, V log_sum,
                        float* weights, float* products, Prefetch& ahead) {
  const F f;
  ahead.bring();
  score_block(call, tile, keys, weights);
  ahead.bring();
  const V shift = hn::IfThenZeroElse(hn::Eq(log_sum, hn::Set(f, kMinusInfinity)), log_sum);
  for (int64_t j = 0; j < keys.count; ++j) {
    hn::Store(exp_of_score(hn::Load(f, weights + j * kLanes), shift), f, weights + j * kLanes);
  }
  dot_blocks(y_blocks, keys.v, keys.count, in_lanes(call.p.value_dim), 1.0f, products, kLanes);
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
