// Rows of channels: from and to memory in any storage, and what is done with whole rows. A row that kernels see is
// float32 and padded with zeros to kRowPad channels.
#if defined(RAMIFY_CPU_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_ROWS_INL_H_
#undef RAMIFY_CPU_SIMD_ROWS_INL_H_
#else
#define RAMIFY_CPU_SIMD_ROWS_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

static_assert(kInPlace % kChannelStep == 0);

// Channels that loops run over: all of a row that is taken where it lies, else those of a copy in whole vectors.
constexpr int64_t in_lanes(int64_t dim) {
  return dim % kChannelStep == 0 ? dim : (dim + kLanes - 1) / kLanes * kLanes;
}

// Storage types as vectors: load(p) gives kLanes float32 numbers, store(v, p) takes them; load_channels(p, rest) and
// store_channels(v, p, rest) only those before the end of a row. Those of 16 bits can narrow(v), and two vectors into
// one.
using Half = hn::Rebind<uint16_t, F>;
struct Float32Lanes {
  using Number = float;
  static HWY_INLINE V load(const float* from) { return hn::LoadU(F(), from); }
  static HWY_INLINE V load_channels(const float* from, int64_t rest) {
    return HWY_NAMESPACE::load_channels(from, rest);
  }
  static HWY_INLINE void store(V v, float* to) { hn::StoreU(v, F(), to); }
};

// Of 16 bits.
HWY_INLINE hn::Vec<Half> load_half_channels(const void* from, int64_t rest) {
  const auto* bits = static_cast<const uint16_t*>(from);
  if constexpr (!kHasPartVectors) return hn::LoadU(Half(), bits);
  return hn::MaskedLoad(hn::FirstN(Half(), static_cast<size_t>(rest)), Half(), bits);
}
HWY_INLINE void store_half_channels(hn::Vec<Half> v, void* to, int64_t rest) {
  auto* bits = static_cast<uint16_t*>(to);
  if constexpr (!kHasPartVectors) return hn::StoreU(v, Half(), bits);
  hn::BlendedStore(v, hn::FirstN(Half(), static_cast<size_t>(rest)), Half(), bits);
}
struct BFloat16Lanes {  // the upper half of float32
  using Number = uint16_t;
  static HWY_INLINE V widen(hn::Vec<Half> v) {
    return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<F>(), v)));
  }
  static HWY_INLINE V load(const uint16_t* from) { return widen(hn::LoadU(Half(), from)); }
  static HWY_INLINE V load_channels(const uint16_t* from, int64_t rest) {
    return widen(load_half_channels(from, rest));
  }
  // In the upper halves: to nearest, ties to even; NaN stays NaN.
  static HWY_INLINE auto round(V v) {
    const hn::RebindToUnsigned<F> u;
    const auto bits = hn::BitCast(u, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff)));
    return hn::IfThenElse(hn::RebindMask(u, hn::Eq(v, v)), rounded, hn::Or(bits, hn::Set(u, 0x400000)));
  }
  static HWY_INLINE hn::Vec<Half> narrow(V v) {
    const hn::RebindToSigned<F> i;
    // below 2^16, so the signed demotion does not saturate
    return hn::DemoteTo(Half(), hn::BitCast(i, hn::ShiftRight<16>(round(v))));
  }
  static HWY_INLINE hn::Vec<hn::Twice<Half>> narrow_two(V first, V second) {
    const hn::Twice<Half> both;
    return hn::ConcatOdd(both, hn::BitCast(both, round(second)), hn::BitCast(both, round(first)));
  }
  static HWY_INLINE void store(V v, uint16_t* to) { hn::StoreU(narrow(v), Half(), to); }
  static HWY_INLINE void store_channels(V v, void* to, int64_t rest) { store_half_channels(narrow(v), to, rest); }
};

// float16 where the processor cannot convert it: Highway's own way truncates and knows no infinity.
inline float from_float16(uint16_t bits) {
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * -kMinusInfinity;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25));
}
inline uint16_t to_float16(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (value != value) return static_cast<uint16_t>(sign | 0x7e00);
  if (size >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to infinity
  int exponent = -14;
  if (size >= 6.103515625e-5f) exponent = std::ilogb(size);                                 // normal numbers
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // ties to even
  // 0x400 of it is the exponent's lowest bit, in which a rounded-up mantissa may carry
  return static_cast<uint16_t>(sign | (mantissa + ((exponent + 14) << 10)));
}

struct Float16Lanes {
  using Number = hwy::float16_t;
  static constexpr bool kConverts = HWY_TARGET != HWY_SSE4;
  static HWY_INLINE V load(const hwy::float16_t* from) {
    if constexpr (!kConverts) {
      HWY_ALIGN float lanes[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = from_float16(std::bit_cast<uint16_t>(from[l]));
      return hn::Load(F(), lanes);
    }
    return hn::PromoteTo(F(), hn::LoadU(hn::Rebind<hwy::float16_t, F>(), from));
  }
  static HWY_INLINE V load_channels(const hwy::float16_t* from, int64_t rest) {
    if constexpr (!kHasPartVectors) return load(from);
    return hn::PromoteTo(F(), hn::BitCast(hn::Rebind<hwy::float16_t, F>(), load_half_channels(from, rest)));
  }
  static HWY_INLINE void store(V v, hwy::float16_t* to) {
    if constexpr (!kConverts) {
      HWY_ALIGN float lanes[kLanes];
      hn::Store(v, F(), lanes);
      for (int64_t l = 0; l < kLanes; ++l) to[l] = std::bit_cast<Number>(to_float16(lanes[l]));
      return;
    }
    hn::StoreU(hn::DemoteTo(hn::Rebind<hwy::float16_t, F>(), v), hn::Rebind<hwy::float16_t, F>(), to);
  }
  static HWY_INLINE hn::Vec<Half> narrow(V v) {
    return hn::BitCast(Half(), hn::DemoteTo(hn::Rebind<hwy::float16_t, F>(), v));
  }
  static HWY_INLINE hn::Vec<hn::Twice<Half>> narrow_two(V first, V second) {
    return hn::Combine(hn::Twice<Half>(), narrow(second), narrow(first));
  }
  static HWY_INLINE void store_channels(V v, void* to, int64_t rest) { store_half_channels(narrow(v), to, rest); }
};

// run(lanes) with the type of lanes that a storage has.
template <class Run>
HWY_INLINE void with_lanes(Storage storage, const Run& run) {
  switch (storage) {
    case Storage::float32:
      return run(Float32Lanes());
    case Storage::bfloat16:
      return run(BFloat16Lanes());
    case Storage::float16:
      return run(Float16Lanes());
  }
}

// Rows of `dim` numbers, `stride` bytes apart, into padded rows `width` apart, and back. Out of line, where its loop
// has all registers for itself.
template <class Lanes>
HWY_NOINLINE void widen_rows_of(const char* from, int64_t stride, int64_t count, int64_t dim, float* to,
                                int64_t width) {
  using Number = typename Lanes::Number;
  for (int64_t r = 0; r < count; ++r, from += stride, to += width) {
    const auto* row = reinterpret_cast<const Number*>(from);
    int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) hn::StoreU(Lanes::load(row + c), F(), to + c);
    if (c == dim) continue;
    HWY_ALIGN Number rest[kLanes] = {};
    std::memcpy(rest, row + c, (dim - c) * sizeof(Number));
    hn::StoreU(Lanes::load(rest), F(), to + c);
  }
}
// Past the cache, in whole vectors: `to` is aligned, and dim a multiple of two of them.
template <class Lanes>
inline constexpr bool streams_halves = sizeof(typename Lanes::Number) == 2;
template <>
inline constexpr bool streams_halves<Float16Lanes> = Float16Lanes::kConverts;
template <class Lanes>
inline void stream_halves(const float* from, int64_t dim, uint16_t* to) {
  const F f;
  const hn::Twice<Half> both;
  for (int64_t c = 0; c < dim; c += 2 * kLanes) {
    hn::Stream(Lanes::narrow_two(hn::LoadU(f, from + c), hn::LoadU(f, from + c + kLanes)), both, to + c);
  }
}
template <class Lanes>
inline void narrow_rows_of(const float* from, int64_t width, int64_t count, int64_t dim, char* to, int64_t stride,
                           bool streams) {
  using Number = typename Lanes::Number;
  for (int64_t r = 0; r < count; ++r, from += width, to += stride) {
    if constexpr (streams_halves<Lanes>) {
      if (streams) {
        stream_halves<Lanes>(from, dim, reinterpret_cast<uint16_t*>(to));
        continue;
      }
    }
    auto* row = reinterpret_cast<Number*>(to);
    int64_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) Lanes::store(hn::LoadU(F(), from + c), row + c);
    if (c == dim) continue;
    HWY_ALIGN Number rest[kLanes];
    Lanes::store(hn::LoadU(F(), from + c), rest);
    std::memcpy(row + c, rest, (dim - c) * sizeof(Number));
  }
}
inline void widen_rows(Storage storage, const char* from, int64_t stride, int64_t count, int64_t dim, float* to,
                       int64_t width) {
  with_lanes(storage, [&](auto lanes) { widen_rows_of<decltype(lanes)>(from, stride, count, dim, to, width); });
}
inline void narrow_rows(Storage storage, const float* from, int64_t width, int64_t count, int64_t dim, char* to,
                        int64_t stride, bool streams = false) {
  with_lanes(storage,
             [&](auto lanes) { narrow_rows_of<decltype(lanes)>(from, width, count, dim, to, stride, streams); });
}

// Neighbouring rows of 16-bit numbers that are written as they are computed.
struct HalfRows {
  uint16_t* data = nullptr;  // null: there are none
  int64_t stride = 0;
  Storage storage = Storage::bfloat16;
};

// Memory that will be read soon: the loops of the current family bring it nearer, a few lines a step, since many at
// once would wait for each other.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const char* begin, const char* end) : at_(begin), end_(end) {}
  // One line of each page into the first-level cache: what is asked for like that always comes, and the page's address
  // is at hand then. Zen 4 forgets some of what is to come into the second-level cache alone (docs/kernels.md).
  HWY_INLINE void open_pages() const {
    for (const char* page = at_; page < end_; page += 4096) __builtin_prefetch(page, 0, 3);
  }
  template <int Lines>
  HWY_INLINE void step() {
    for (int l = 0; l < Lines; ++l) __builtin_prefetch(at_ + 64 * l, 0, 2);
    at_ = at_ + 64 * Lines < end_ ? at_ + 64 * Lines : at_;  // the last lines again and again cost nothing
  }

 private:
  static inline const char kNothing[256] = {};  // as much as a step looks at
  const char *at_ = kNothing, *end_ = kNothing;
};

// Of some tensors in turn.
template <int kCount>
struct AheadOf {
  Ahead of[kCount];
  template <int Lines>
  HWY_INLINE void step() {
    for (Ahead& one : of) one.step<Lines>();
  }
};
using BothAhead = AheadOf<2>;

// Where there is nothing to bring.
struct NothingAhead {
  template <int Lines>
  HWY_INLINE void step() {}
};

// A tensor's rows as kernels see them: where a row lies, or a copy of it.
struct Source {
  Rows rows;
  Storage storage = Storage::float32;
  int64_t dim = 0;
  bool is_direct = false;  // rows can be read where they are

  Source(const Rows& tensor, Storage s, int64_t d)
      : rows(tensor), storage(s), dim(d), is_direct(s == Storage::float32 && d % kChannelStep == 0) {}

  const char* at(int64_t row, int64_t head) const {
    return static_cast<const char*>(rows.data) + (row * rows.row_stride + head * rows.head_stride) * number_bytes();
  }
  int64_t number_bytes() const { return storage == Storage::float32 ? 4 : 2; }
  int64_t head_bytes() const { return rows.head_stride * number_bytes(); }
  int64_t row_bytes() const { return rows.row_stride * number_bytes(); }
  HWY_INLINE const float* read(int64_t row, int64_t head, float* copy) const {
    if (HWY_LIKELY(is_direct)) return reinterpret_cast<const float*>(at(row, head));
    widen_rows(storage, at(row, head), 0, 1, dim, copy, 0);
    return copy;
  }
};

// A tensor that is written: a row is computed where it will lie, or in a copy that `finish` writes.
struct Target : Source {
  using Source::Source;
  float* row(int64_t r, int64_t head, float* copy) const {
    return is_direct ? reinterpret_cast<float*>(const_cast<char*>(at(r, head))) : copy;
  }
  void finish(int64_t r, int64_t head, const float* copy) const {
    if (!is_direct) narrow_rows(storage, copy, 0, 1, dim, const_cast<char*>(at(r, head)), 0);
  }
};

// to = scale · Σ weight[r] rows[r]; C vectors of channels, of which one may be the last of a row, `rest` channels
// before its end.
template <int C>
HWY_INLINE void pool_tile(const float* const* rows, const float* weights, int64_t count, float scale, int64_t c,
                          int64_t rest, float* to) {
  const F f;
  const auto load = [&](const float* row, int l) {
    return C == 1 ? load_channels(row + c, rest) : hn::LoadU(f, row + c + l * kLanes);
  };
  V sum[C];
  for (int l = 0; l < C; ++l) sum[l] = hn::Zero(f);
  if (weights) {
    for (int64_t r = 0; r < count; ++r) {
      const V weight = hn::Set(f, weights[r]);
      for (int l = 0; l < C; ++l) sum[l] = hn::MulAdd(load(rows[r], l), weight, sum[l]);
    }
  } else {
    for (int64_t r = 0; r < count; ++r) {
      for (int l = 0; l < C; ++l) sum[l] = hn::Add(sum[l], load(rows[r], l));
    }
  }
  for (int l = 0; l < C; ++l) hn::StoreU(hn::Mul(sum[l], hn::Set(f, scale)), f, to + c + l * kLanes);
}

// The same of whole rows; weights may be null: ones.
inline void pool_rows(const float* const* rows, const float* weights, int64_t count, float scale, int64_t channels,
                      float* to) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) pool_tile<4>(rows, weights, count, scale, c, channels - c, to);
  for (; c < channels; c += kLanes) pool_tile<1>(rows, weights, count, scale, c, channels - c, to);
}

// The mean of neighbouring rows in their storage; dim is a multiple of kChannelStep.
template <class Lanes>
inline void pool_stored_of(const char* from, int64_t stride, int64_t count, float scale, int64_t dim, float* to) {
  using Number = typename Lanes::Number;
  const auto pool = [&](int64_t c, const auto& load) {
    V sum = hn::Zero(F());
    const char* row = from + c * static_cast<int64_t>(sizeof(Number));
    for (int64_t r = 0; r < count; ++r, row += stride) sum = hn::Add(sum, load(reinterpret_cast<const Number*>(row)));
    hn::StoreU(hn::Mul(sum, hn::Set(F(), scale)), F(), to + c);
  };
  int64_t c = 0;
  for (; c + kLanes <= dim; c += kLanes) pool(c, [](const Number* row) { return Lanes::load(row); });
  if (c < dim) pool(c, [&](const Number* row) { return Lanes::load_channels(row, dim - c); });
}
inline void pool_stored(Storage storage, const char* from, int64_t stride, int64_t count, float scale, int64_t dim,
                        float* to) {
  with_lanes(storage, [&](auto lanes) { pool_stored_of<decltype(lanes)>(from, stride, count, scale, dim, to); });
}

HWY_INLINE V dot_lanes(const float* a, const float* b, int64_t channels) {
  const F f;
  V sum = hn::Zero(f);
  for_each_vector(channels, [&](RowPart part) { sum = hn::MulAdd(part.load(a), part.load(b), sum); });
  return sum;
}
inline float dot_row(const float* a, const float* b, int64_t channels) {
  return sum_of_lanes(dot_lanes(a, b, channels));
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
