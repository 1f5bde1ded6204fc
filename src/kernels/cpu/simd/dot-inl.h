// The first of the two products that attention is made of, on small tiles that stay in the first-level cache:
//   dot_blocks    s[j][i] = Σ_c q[i][c] k[j][c]     lanes are queries i, so that a softmax over j is vertical
#if defined(RAMIFY_CPU_SIMD_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_DOT_INL_H_
#undef RAMIFY_CPU_SIMD_DOT_INL_H_
#else
#define RAMIFY_CPU_SIMD_DOT_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

inline constexpr int kKeyTile = kManyRegisters ? 4 : 2;

using Four = hn::CappedTag<float, 4>;

// Four channels of rows r, r + 4, r + 8, ... side by side.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* const* rows, int64_t c) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + c);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = hn::MaxLanes(half);
    return hn::Combine(d, load_blocks(half, rows + kRows, c), load_blocks(half, rows, c));
  }
}

// Whether interleave_rows can read 16-bit rows.
inline constexpr bool kInterleavesHalves = HWY_TARGET <= HWY_AVX3;

// Where scale · Σ rows go; null: nowhere. With `upper` it gets those of the upper half of the rows, `to` the others.
struct RowSums {
  float scale = 1;
  float* to = nullptr;
  float* upper = nullptr;
};

#if HWY_TARGET <= HWY_AVX3
// interleave_rows of sixteen channels from c on: those of four rows at once, whose 128-bit blocks are then exchanged.
// Of the last vector of a row `rest` channels are there.
template <class Lanes, bool kIsPart>
HWY_INLINE void interleave_vector(const float* const* rows, int64_t c, int64_t rest, float* blocks,
                                  const RowSums& sums) {
  const F f;
  const auto load = [&](int r) {
    const auto* row = reinterpret_cast<const typename Lanes::Number*>(rows[r]) + c;
    return (kIsPart ? Lanes::load_channels(row, rest) : Lanes::load(row)).raw;
  };
  __m512 lower = _mm512_setzero_ps(), upper = _mm512_setzero_ps();
  RAMIFY_UNROLL
  for (int g = 0; g < 4; ++g) {
    const __m512 row0 = load(g), row1 = load(g + 4), row2 = load(g + 8), row3 = load(g + 12);
    const __m512 low01 = _mm512_shuffle_f32x4(row0, row1, 0x44), up01 = _mm512_shuffle_f32x4(row0, row1, 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(row2, row3, 0x44), up23 = _mm512_shuffle_f32x4(row2, row3, 0xee);
    float* to = blocks + g * kLanes;
    _mm512_store_ps(to, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_store_ps(to + 4 * kLanes, _mm512_shuffle_f32x4(low01, low23, 0xdd));
    _mm512_store_ps(to + 8 * kLanes, _mm512_shuffle_f32x4(up01, up23, 0x88));
    _mm512_store_ps(to + 12 * kLanes, _mm512_shuffle_f32x4(up01, up23, 0xdd));
    lower = _mm512_add_ps(lower, _mm512_add_ps(row0, row1));
    upper = _mm512_add_ps(upper, _mm512_add_ps(row2, row3));
  }
  const V scale = hn::Set(f, sums.scale);
  if (sums.upper) {
    hn::StoreU(hn::Mul(V{lower}, scale), f, sums.to + c);
    hn::StoreU(hn::Mul(V{upper}, scale), f, sums.upper + c);
  } else if (sums.to) {
    hn::StoreU(hn::Mul(hn::Add(V{lower}, V{upper}), scale), f, sums.to + c);
  }
}
#endif

// kLanes rows, interleaved so that dot_blocks can use whole vectors without transposing: for every four channels there
// are four vectors, and vector g holds those channels of rows g, g + 4, g + 8, ... `rows` really lead to numbers of
// Lanes. Out of line it has all registers.
template <class Lanes = Float32Lanes>
HWY_NOINLINE void interleave_rows(const float* const* rows, int64_t channels, float* blocks, RowSums sums = {}) {
#if HWY_TARGET <= HWY_AVX3
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes, blocks += 4 * 4 * kLanes) {
    interleave_vector<Lanes, false>(rows, c, kLanes, blocks, sums);
  }
  if (c < channels) interleave_vector<Lanes, true>(rows, c, channels - c, blocks, sums);
#else
  const F f;
  for (int64_t c = 0; c < channels; c += 4, blocks += 4 * kLanes) {
    for (int64_t g = 0; g < 4; ++g) hn::Store(load_blocks(f, rows + g, c), f, blocks + g * kLanes);
  }
  if (!sums.to) return;
  const int64_t count = sums.upper ? kLanes / 2 : kLanes;
  pool_rows(rows, nullptr, count, sums.scale, channels, sums.to);
  if (sums.upper) pool_rows(rows + count, nullptr, count, sums.scale, channels, sums.upper);
#endif
}

// The same for `count` rows, and zeros for the rest of the lanes.
inline void interleave_tile(const float* const* rows, int64_t count, int64_t channels, const float* zeros,
                            float* blocks) {
  const float* all[kLanes];
  for (int64_t r = 0; r < kLanes; ++r) all[r] = r < count ? rows[r] : zeros;
  interleave_rows(all, channels, blocks);
}

// kLanes rows as columns: channel c of row r into to[c * to_stride + r].
inline void transpose_rows(const float* const* rows, int64_t channels, float* to, int64_t to_stride) {
  const F f;
  const hn::RepartitionToWide<F> pairs;
  const auto as_pairs = [&](V v) { return hn::BitCast(pairs, v); };
  for (int64_t c = 0; c < channels; c += 4, to += 4 * to_stride) {
    const V row0 = load_blocks(f, rows, c), row1 = load_blocks(f, rows + 1, c);
    const V row2 = load_blocks(f, rows + 2, c), row3 = load_blocks(f, rows + 3, c);
    const auto low01 = as_pairs(hn::InterleaveLower(f, row0, row1)),
               up01 = as_pairs(hn::InterleaveUpper(f, row0, row1));
    const auto low23 = as_pairs(hn::InterleaveLower(f, row2, row3)),
               up23 = as_pairs(hn::InterleaveUpper(f, row2, row3));
    hn::Store(hn::BitCast(f, hn::InterleaveLower(pairs, low01, low23)), f, to);
    hn::Store(hn::BitCast(f, hn::InterleaveUpper(pairs, low01, low23)), f, to + to_stride);
    hn::Store(hn::BitCast(f, hn::InterleaveLower(pairs, up01, up23)), f, to + 2 * to_stride);
    hn::Store(hn::BitCast(f, hn::InterleaveUpper(pairs, up01, up23)), f, to + 3 * to_stride);
  }
}

// The sums of the 128-bit blocks of four vectors: block r of the result is block r's sums, in the order of the vectors.
HWY_INLINE V sums_in_blocks(V a, V b, V c, V d) {
  const F f;
  const hn::RepartitionToWide<F> pairs;
  const auto ab = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(f, a, b), hn::InterleaveUpper(f, a, b)));
  const auto cd = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(f, c, d), hn::InterleaveUpper(f, c, d)));
  return hn::Add(hn::BitCast(f, hn::InterleaveLower(pairs, ab, cd)),
                 hn::BitCast(f, hn::InterleaveUpper(pairs, ab, cd)));
}

// Rows that all queries are multiplied with. With `upper` these are for the queries in the upper half of the lanes,
// `rows` for the others.
struct KeyRows {
  const float* const* rows;
  const float* const* upper;
  KeyRows(const float* const* all, const float* const* for_upper = nullptr) : rows(all), upper(for_upper) {}
};

// kLines of what is brought nearer come with every step of Keys keys.
template <int Keys, bool kTwoHalves, int kLines, class Prefetch>
HWY_INLINE void dot_tile(const float* blocks, KeyRows keys, int64_t channels, V scale, float* to, int64_t to_stride,
                         Prefetch& ahead) {
  const F f;
  V sum[Keys][4];
  const float* key[Keys];
  const float* upper[Keys];
  RAMIFY_UNROLL
  for (int j = 0; j < Keys; ++j) {
    key[j] = keys.rows[j];
    if constexpr (kTwoHalves) upper[j] = keys.upper[j];
    RAMIFY_UNROLL
    for (int g = 0; g < 4; ++g) sum[j][g] = hn::Zero(f);
  }
  for (int64_t c = 0; c < channels; c += 4, blocks += 4 * kLanes) {
    ahead.template step<kLines>();
    const V q0 = hn::Load(f, blocks), q1 = hn::Load(f, blocks + kLanes);
    const V q2 = hn::Load(f, blocks + 2 * kLanes), q3 = hn::Load(f, blocks + 3 * kLanes);
    RAMIFY_UNROLL
    for (int j = 0; j < Keys; ++j) {
      V k = hn::LoadDup128(f, key[j] + c);  // the four channels of the key, repeated
      if constexpr (kTwoHalves) k = hn::ConcatUpperLower(f, hn::LoadDup128(f, upper[j] + c), k);
      sum[j][0] = hn::MulAdd(k, q0, sum[j][0]);
      sum[j][1] = hn::MulAdd(k, q1, sum[j][1]);
      sum[j][2] = hn::MulAdd(k, q2, sum[j][2]);
      sum[j][3] = hn::MulAdd(k, q3, sum[j][3]);
    }
  }
  RAMIFY_UNROLL
  for (int j = 0; j < Keys; ++j) {
    const V sums = sums_in_blocks(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
    hn::Store(hn::Mul(sums, scale), f, to + j * to_stride);
  }
}

// s[j][lane] = scale q[lane] · k[j]; `blocks` holds the queries, `to` is aligned.
template <bool kTwoHalves = false, int kLines = 1, class Prefetch>
inline void dot_blocks(const float* blocks, KeyRows keys, int64_t num_keys, int64_t channels, float scale, float* to,
                       int64_t to_stride, Prefetch& shared_ahead) {
  Prefetch ahead = shared_ahead;  // a copy stays in registers
  const V factor = hn::Set(F(), scale);
  int64_t j = 0;
  const auto tile = [&]<int Keys>(std::integral_constant<int, Keys>) {
    const KeyRows some(keys.rows + j, kTwoHalves ? keys.upper + j : nullptr);
    dot_tile<Keys, kTwoHalves, kLines>(blocks, some, channels, factor, to + j * to_stride, to_stride, ahead);
  };
  for (; j + kKeyTile <= num_keys; j += kKeyTile) tile(std::integral_constant<int, kKeyTile>());
  switch (num_keys - j) {
    case 3:
      tile(std::integral_constant<int, 3>());
      break;
    case 2:
      tile(std::integral_constant<int, 2>());
      break;
    case 1:
      tile(std::integral_constant<int, 1>());
      break;
    default:
      break;
  }
  shared_ahead = ahead;
}

inline void dot_blocks(const float* blocks, const float* const* keys, int64_t num_keys, int64_t channels, float scale,
                       float* to, int64_t to_stride) {
  NothingAhead nothing;
  dot_blocks(blocks, KeyRows(keys), num_keys, channels, scale, to, to_stride, nothing);
}

// Adds the 128-bit blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<Four> sum_of_blocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The same for few queries, where most lanes of dot_blocks would be idle: lanes are channels here. Rows of `to` are
// written in fours.
inline void dot_few(const float* const* q, int64_t queries, const float* const* k, int64_t keys, int64_t channels,
                    float scale, bool add, float* to, int64_t to_stride) {
  const F f;
  const Four four;
  for (int64_t i = 0; i < queries; i += 4) {
    const float* q0 = q[i];
    const float* q1 = q[std::min(i + 1, queries - 1)];
    const float* q2 = q[std::min(i + 2, queries - 1)];
    const float* q3 = q[std::min(i + 3, queries - 1)];
    for (int64_t j = 0; j < keys; ++j) {
      V s0 = hn::Zero(f), s1 = s0, s2 = s0, s3 = s0;
      const auto add_channels = [&](int64_t c, const auto& load) {
        const V key = load(k[j] + c);
        s0 = hn::MulAdd(load(q0 + c), key, s0);
        s1 = hn::MulAdd(load(q1 + c), key, s1);
        s2 = hn::MulAdd(load(q2 + c), key, s2);
        s3 = hn::MulAdd(load(q3 + c), key, s3);
      };
      int64_t c = 0;
      for (; c + kLanes <= channels; c += kLanes) add_channels(c, [](const float* row) { return hn::LoadU(F(), row); });
      if (c < channels) add_channels(c, [&](const float* row) { return load_channels(row, channels - c); });
      float* at = to + j * to_stride + i;
      const auto sums = hn::Mul(sum_of_blocks(f, sums_in_blocks(s0, s1, s2, s3)), hn::Set(four, scale));
      hn::StoreU(add ? hn::Add(hn::LoadU(four, at), sums) : sums, four, at);
    }
  }
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
