// The second of the two products that attention is made of, on small tiles that stay in the first-level cache:
//   combine_rows  y[r][c] = Σ_s a(r, s) x[s][c]     lanes are channels c, so that rows need no transposing
#if defined(RAMIFY_CPU_SIMD_COMBINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_COMBINE_INL_H_
#undef RAMIFY_CPU_SIMD_COMBINE_INL_H_
#else
#define RAMIFY_CPU_SIMD_COMBINE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

inline constexpr int kRowTile = kManyRegisters ? 8 : 6;

// How rows are combined: out[r] = base + row_scale[r] · Σ_s a[r · row_step + s · term_step] terms[s].
struct Combination {
  const float* a = nullptr;
  int64_t row_step = 1;
  int64_t term_step = 1;
  const float* const* terms = nullptr;
  Storage term_storage = Storage::float32;  // what these pointers really lead to; else rows fill all tiles
  int64_t num_terms = 0;
  const int64_t* terms_of_row = nullptr;  // how many of the terms a row needs, not falling; null: all
  const float* row_scale = nullptr;
  const float* base = nullptr;  // one row for all; null: zero
  bool adds = false;            // to what is in out; base is not looked at then
  bool hides = false;           // a term of weight 0 is none: also if it is infinite or NaN
  bool streams = false;         // past the cache: out is aligned and not read soon
  HalfRows halves;              // instead of out, where they are
};

// Asks for a line of the cache that is going to be written, which a store would wait for.
HWY_INLINE void prefetch_to_write(const void* line) {
#if HWY_ARCH_X86
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // the builtin only reads without -mprfchw
#else
  __builtin_prefetch(line, 1);
#endif
}

// Asks for the lines that R rows of C vectors of results go to.
template <int R, int C>
HWY_INLINE void prefetch_results(const Combination& p, int64_t r, int64_t c, float* const* out) {
  constexpr int64_t kLine = 64, kRow = C * kLanes;
  const bool in_halves = p.halves.data != nullptr;
  RAMIFY_UNROLL
  for (int i = 0; i < R; ++i) {
    const char* row = in_halves ? reinterpret_cast<const char*>(p.halves.data + (r + i) * p.halves.stride + c)
                                : reinterpret_cast<const char*>(out[r + i] + c);
    for (int64_t byte = 0; byte < (in_halves ? 2 : 4) * kRow; byte += kLine) prefetch_to_write(row + byte);
  }
}

// Results of a tile into rows of 16 bits, two vectors at once where there are two.
template <bool kIsPart, class Lanes, int R, int C>
HWY_INLINE void narrow_tile(Lanes lanes, const V (&sum)[R][C], const HalfRows& to, int64_t r, int64_t c, int64_t rest,
                            bool streams) {
  const hn::Twice<Half> both;
  uint16_t* row = to.data + r * to.stride + c;
  RAMIFY_UNROLL
  for (int i = 0; i < R; ++i, row += to.stride) {
    if constexpr (kIsPart || C == 1) {
      RAMIFY_UNROLL
      for (int l = 0; l < C; ++l) lanes.store_channels(sum[i][l], row + l * kLanes, rest - l * kLanes);
      continue;
    }
    RAMIFY_UNROLL
    for (int l = 0; l + 1 < C; l += 2) {
      const auto numbers = lanes.narrow_two(sum[i][l], sum[i][l + 1]);
      if (streams) {
        hn::Stream(numbers, both, row + l * kLanes);
      } else {
        hn::StoreU(numbers, both, row + l * kLanes);
      }
    }
  }
}

// Whether all numbers that a tile adds are finite. One row tells: whatever its weights, a term that is NaN or infinite
// makes its sum so, too.
template <int C>
HWY_INLINE bool are_finite(const V (&row)[C]) {
  V zero = hn::Zero(F());
  RAMIFY_UNROLL
  for (int l = 0; l < C; ++l) zero = hn::MulAdd(row[l], hn::Zero(F()), zero);
  return hn::AllTrue(F(), hn::Eq(zero, hn::Zero(F())));
}

// A tile some of whose terms are not finite: they count only where their weight is not 0. Other rows and channels get
// the same bits as without them.
template <class Lanes>
HWY_NOINLINE void combine_seen(const Combination& p, int64_t r, int64_t rows, int64_t c, int64_t end,
                               float* const* out) {
  const F f;
  const int64_t num_terms = p.terms_of_row ? p.terms_of_row[r + rows - 1] : p.num_terms;
  for (const int64_t row_end = r + rows; r < row_end; ++r) {
    for (int64_t at = c; at < end; at += kLanes) {
      V sum = hn::Zero(f);
      for (int64_t s = 0; s < num_terms; ++s) {
        const float weight = p.a[r * p.row_step + s * p.term_step];
        if (weight == 0) continue;
        const auto* term = reinterpret_cast<const typename Lanes::Number*>(p.terms[s]);
        sum = hn::MulAdd(hn::Set(f, weight), Lanes::load_channels(term + at, end - at), sum);
      }
      sum = hn::Mul(sum, hn::Set(f, p.row_scale[r]));
      const float* base = p.adds ? out[r] : p.base;
      if (base) sum = hn::Add(sum, load_channels(base + at, end - at));
      if (!p.halves.data) {
        store_channels(sum, out[r] + at, end - at);
        continue;
      }
      with_lanes(p.halves.storage, [&](auto lanes) {
        if constexpr (streams_halves<decltype(lanes)>) {
          lanes.store_channels(sum, p.halves.data + r * p.halves.stride + at, end - at);
        }
      });
    }
  }
}

// R rows by C vectors of channels. kStep is row_step where it is a constant, else 0. With every term kLines come
// nearer. With kIsPart the last vector is the end of the rows, which is `rest` channels away.
template <class Lanes, int R, int C, int64_t kStep, int kLines, bool kIsPart = false, class Prefetch>
HWY_INLINE void combine_tile(const Combination& p, int64_t r, int64_t c, int64_t rest, float* const* out,
                             Prefetch& ahead) {
  const F f;
  const auto is_part = [](int l) { return kIsPart && l == C - 1; };
  const auto load = [&](const float* row, int l) {
    return is_part(l) ? load_channels(row + l * kLanes, rest - l * kLanes) : hn::LoadU(f, row + l * kLanes);
  };
  const auto load_term = [&](const typename Lanes::Number* row, int l) {
    return is_part(l) ? Lanes::load_channels(row + l * kLanes, rest - l * kLanes) : Lanes::load(row + l * kLanes);
  };
  const auto store = [&](V v, float* row, int l) {
    if (is_part(l)) return store_channels(v, row + l * kLanes, rest - l * kLanes);
    hn::StoreU(v, f, row + l * kLanes);
  };
  V sum[R][C];
  RAMIFY_UNROLL
  for (int i = 0; i < R; ++i) {
    RAMIFY_UNROLL
    for (int l = 0; l < C; ++l) sum[i][l] = hn::Zero(f);
  }
  const int64_t row_step = kStep ? kStep : p.row_step, term_step = p.term_step;
  const float* a = p.a + r * row_step;
  // Every three rows of weights have a pointer of their own where the step is no constant, so that all are reached with
  // one step in a register: with more of them the compiler has none left for what is brought nearer.
  const float *middle = a + 3 * row_step, *upper = a + 6 * row_step;
  if constexpr (kStep == 0) asm("" : "+r"(middle), "+r"(upper));  // else they become a + ... again
  const auto weight_of = [&](int i) {
    if constexpr (kStep) return a[i * kStep];
    return i < 3 ? a[i * row_step] : i < 6 ? middle[(i - 3) * row_step] : upper[(i - 6) * row_step];
  };
  const int64_t num_terms = p.terms_of_row ? p.terms_of_row[r + R - 1] : p.num_terms;
  if (!p.streams) prefetch_results<R, C>(p, r, c, out);
  for (int64_t s = 0; s < num_terms; ++s) {
    ahead.template step<kLines>();
    const auto* term = reinterpret_cast<const typename Lanes::Number*>(p.terms[s]) + c;
    V x[C];
    RAMIFY_UNROLL
    for (int l = 0; l < C; ++l) x[l] = load_term(term, l);
    RAMIFY_UNROLL
    for (int i = 0; i < R; ++i) {
      const V weight = hn::Set(f, weight_of(i));
      RAMIFY_UNROLL
      for (int l = 0; l < C; ++l) sum[i][l] = hn::MulAdd(weight, x[l], sum[i][l]);
    }
    a += term_step, middle += term_step, upper += term_step;
  }
  if (p.hides && HWY_UNLIKELY(!are_finite(sum[0]))) {
    return combine_seen<Lanes>(p, r, R, c, c + std::min(C * kLanes, rest), out);
  }
  float* to[R];  // and all else is read before the first store, behind which the compiler would read it again
  RAMIFY_UNROLL
  for (int i = 0; i < R; ++i) {
    to[i] = out[r + i] + c;
    const V scale = hn::Set(f, p.row_scale[r + i]);
    RAMIFY_UNROLL
    for (int l = 0; l < C; ++l) sum[i][l] = hn::Mul(sum[i][l], scale);
  }
  if (p.adds) {  // one by one: a row may be there twice
    RAMIFY_UNROLL
    for (int i = 0; i < R; ++i) {
      RAMIFY_UNROLL
      for (int l = 0; l < C; ++l) {
        store(hn::Add(sum[i][l], load(to[i], l)), to[i], l);
      }
    }
    return;
  }
  if (p.base) {
    RAMIFY_UNROLL
    for (int l = 0; l < C; ++l) {
      const V base = load(p.base + c, l);
      RAMIFY_UNROLL
      for (int i = 0; i < R; ++i) sum[i][l] = hn::Add(sum[i][l], base);
    }
  }
  const bool streams = p.streams;
  if (p.halves.data) {
    return with_lanes(p.halves.storage, [&](auto lanes) {
      if constexpr (streams_halves<decltype(lanes)>) narrow_tile<kIsPart>(lanes, sum, p.halves, r, c, rest, streams);
    });
  }
  RAMIFY_UNROLL
  for (int i = 0; i < R; ++i) {
    RAMIFY_UNROLL
    for (int l = 0; l < C; ++l) {
      if (streams) {
        hn::Stream(sum[i][l], f, to[i] + l * kLanes);
      } else {
        store(sum[i][l], to[i], l);
      }
    }
  }
}

// Lines that come nearer with every term: the fewer rows the fewer steps.
template <int R>
inline constexpr int kLinesOfTile = R == kRowTile ? 1
                                    : R < 4       ? 4
                                                  : 2;

// The end of rows whose last vector is not full, out of line: full tiles would get fewer registers beside it. Returns
// what comes next to bring nearer, which so stays in registers, too.
template <int R, int C, int64_t kStep, class Lanes, int kLines, class Prefetch>
HWY_NOINLINE Prefetch combine_rest(const Combination& p, int64_t r, int64_t c, int64_t rest, float* const* out,
                                   Prefetch ahead) {
  combine_tile<Lanes, R, C, kStep, kLines, true>(p, r, c, rest, out, ahead);
  return ahead;
}

template <int R, int64_t kStep = 0, class Lanes = Float32Lanes, int kLines = kLinesOfTile<R>, class Prefetch>
HWY_INLINE void combine_row_tile(const Combination& p, int64_t r, int64_t channels, float* const* out,
                                 Prefetch& ahead) {
  constexpr int kChannelTile = kManyRegisters && R < 4 ? 4 : 2;  // enough sums for each to be ready when it is needed
  int64_t c = 0;
  for (; c + kChannelTile * kLanes <= channels; c += kChannelTile * kLanes)
    combine_tile<Lanes, R, kChannelTile, kStep, kLines>(p, r, c, channels - c, out, ahead);
  if constexpr (kChannelTile > 2) {  // pairs, since halves are written by two vectors
    for (; c + 2 * kLanes <= channels; c += 2 * kLanes) {
      combine_tile<Lanes, R, 2, kStep, kLines>(p, r, c, channels - c, out, ahead);
    }
  }
  if (c == channels) return;
  if constexpr (kHasPartVectors) {
    const int64_t rest = channels - c;
    if (rest > kLanes) ahead = combine_rest<R, 2, kStep, Lanes, kLines>(p, r, c, rest, out, ahead);
    if (rest < kLanes) ahead = combine_rest<R, 1, kStep, Lanes, kLines>(p, r, c, rest, out, ahead);
    if (rest != kLanes) return;
  }
  combine_tile<Lanes, R, 1, kStep, kLines>(p, r, c, channels - c, out, ahead);
}

// Returns how many rows are done.
template <int64_t kStep, class Lanes = Float32Lanes, class Prefetch>
HWY_INLINE int64_t combine_full_tiles(const Combination& p, int64_t rows, int64_t channels, float* const* out,
                                      Prefetch& ahead) {
  int64_t r = 0;
  for (; r + kRowTile <= rows; r += kRowTile) combine_row_tile<kRowTile, kStep, Lanes>(p, r, channels, out, ahead);
  return r;
}

// The same with terms in 16 bits, which are widened as they are read.
template <class Prefetch>
HWY_INLINE void combine_stored(const Combination& p, int64_t rows, int64_t channels, float* const* out,
                               Prefetch& ahead) {
  with_lanes(p.term_storage, [&](auto lanes) {
    using Lanes = decltype(lanes);
    if constexpr (streams_halves<Lanes>) {
      if (p.row_step == 1) {
        combine_full_tiles<1, Lanes>(p, rows, channels, out, ahead);
      } else {
        combine_full_tiles<kNarrowFamily, Lanes>(p, rows, channels, out, ahead);
      }
    }
  });
}

// One full tile, which has half as many steps as lines.
template <int64_t kStep>
HWY_NOINLINE void combine_one_tile(const Combination& p, int64_t channels, float* const* out, Ahead& ahead) {
  combine_row_tile<kRowTile, kStep, Float32Lanes, 2>(p, 0, channels, out, ahead);
}

template <class Prefetch>
inline void combine_rows(const Combination& p, int64_t rows, int64_t channels, float* const* out,
                         Prefetch& shared_ahead) {
  if constexpr (std::is_same_v<Prefetch, Ahead>) {
    const bool is_one = rows == kRowTile && p.term_storage == Storage::float32;
    if (is_one && p.row_step == 1) return combine_one_tile<1>(p, channels, out, shared_ahead);
    if (is_one && p.row_step == kNarrowFamily) return combine_one_tile<kNarrowFamily>(p, channels, out, shared_ahead);
  }
  Prefetch ahead = shared_ahead;
  if (p.term_storage != Storage::float32) {
    combine_stored(p, rows, channels, out, ahead);
    shared_ahead = ahead;
    return;
  }
  const int64_t r = p.row_step == 1               ? combine_full_tiles<1>(p, rows, channels, out, ahead)
                    : p.row_step == kNarrowFamily ? combine_full_tiles<kNarrowFamily>(p, rows, channels, out, ahead)
                                                  : combine_full_tiles<0>(p, rows, channels, out, ahead);
  switch (rows - r) {
    case 7:
      combine_row_tile<7>(p, r, channels, out, ahead);
      break;
    case 6:
      combine_row_tile<6>(p, r, channels, out, ahead);
      break;
    case 5:
      combine_row_tile<5>(p, r, channels, out, ahead);
      break;
    case 4:
      combine_row_tile<4>(p, r, channels, out, ahead);
      break;
    case 3:
      combine_row_tile<3>(p, r, channels, out, ahead);
      break;
    case 2:
      combine_row_tile<2>(p, r, channels, out, ahead);
      break;
    case 1:
      combine_row_tile<1>(p, r, channels, out, ahead);
      break;
    default:
      break;
  }
  shared_ahead = ahead;
}

inline void combine_rows(const Combination& p, int64_t rows, int64_t channels, float* const* out) {
  NothingAhead nothing;
  combine_rows(p, rows, channels, out, nothing);
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
