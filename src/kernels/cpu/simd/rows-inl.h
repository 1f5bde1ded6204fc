// Rows of channels: from and to memory in any storage, and what is done with whole rows. A row that kernels see is
// float32 and padded with zeros to kRowPad channels.
#if defined(RAMIFY_CPU_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_ROWS_INL_H_
#undef RAMIFY_CPU_SIMD_ROWS_INL_H_
#else
#define RAMIFY_CPU_SIMD_ROWS_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

// Channels that loops run over: a row of `dim` rounded up to whole vectors.
constexpr int64_t in_lanes(int64_t dim) {
  return (dim + kLanes - 1) / kLanes * kLanes;
}

// bfloat16 is the upper half of float32; rounding is to nearest, ties to even, and NaN stays NaN.
inline float from_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
inline uint16_t to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Reads `dim` numbers into a padded row.
inline void widen_row(Storage storage, const void* from, int64_t dim, float* to) {
  const F f;
  int64_t c = 0;
  if (storage == Storage::float32) {
    const auto* source = static_cast<const float*>(from);
    for (; c + kLanes <= dim; c += kLanes) hn::StoreU(hn::LoadU(f, source + c), f, to + c);
    for (; c < dim; ++c) to[c] = source[c];
  } else if (storage == Storage::bfloat16) {
    const auto* source = static_cast<const uint16_t*>(from);
    const hn::Rebind<uint16_t, F> half;
    const hn::RebindToUnsigned<F> u;
    for (; c + kLanes <= dim; c += kLanes) {
      const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(u, hn::LoadU(half, source + c)));
      hn::StoreU(hn::BitCast(f, bits), f, to + c);
    }
    for (; c < dim; ++c) to[c] = from_bfloat16(source[c]);
  } else {
    const auto* source = static_cast<const hwy::float16_t*>(from);
    const hn::Rebind<hwy::float16_t, F> half;
    for (; c + kLanes <= dim; c += kLanes) hn::StoreU(hn::PromoteTo(f, hn::LoadU(half, source + c)), f, to + c);
    if (c < dim) {
      HWY_ALIGN hwy::float16_t rest[kLanes] = {};
      std::memcpy(rest, source + c, (dim - c) * sizeof(rest[0]));
      hn::StoreU(hn::PromoteTo(f, hn::Load(half, rest)), f, to + c);
      c += kLanes;
    }
  }
  for (; c < in_lanes(dim); ++c) to[c] = 0;
}

// Writes the first `dim` numbers of a padded row.
inline void narrow_row(Storage storage, const float* from, int64_t dim, void* to) {
  const F f;
  int64_t c = 0;
  if (storage == Storage::float32) {
    std::memcpy(to, from, dim * sizeof(float));
  } else if (storage == Storage::bfloat16) {
    auto* target = static_cast<uint16_t*>(to);
    const hn::Rebind<uint16_t, F> half;
    const hn::RebindToUnsigned<F> u;
    const hn::RebindToSigned<F> i;
    for (; c + kLanes <= dim; c += kLanes) {
      const V value = hn::LoadU(f, from + c);
      const auto bits = hn::BitCast(u, value);
      const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
      const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff))));
      const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(u, 0x40));
      const auto is_number = hn::RebindMask(u, hn::Eq(value, value));
      // both are below 2^16, so the signed demotion does not saturate
      const auto result = hn::IfThenElse(is_number, rounded, quiet);
      hn::StoreU(hn::DemoteTo(half, hn::BitCast(i, result)), half, target + c);
    }
    for (; c < dim; ++c) target[c] = to_bfloat16(from[c]);
  } else {
    auto* target = static_cast<hwy::float16_t*>(to);
    const hn::Rebind<hwy::float16_t, F> half;
    for (; c + kLanes <= dim; c += kLanes) hn::StoreU(hn::DemoteTo(half, hn::LoadU(f, from + c)), half, target + c);
    if (c < dim) {
      HWY_ALIGN hwy::float16_t rest[kLanes];
      hn::Store(hn::DemoteTo(half, hn::LoadU(f, from + c)), half, rest);
      std::memcpy(target + c, rest, (dim - c) * sizeof(rest[0]));
    }
  }
}

// Memory that will be read soon: the loops of the current family bring it nearer, a few lines a step, since many at
// once would wait for each other.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const char* begin, const char* end) : at_(begin), end_(end) {}
  template <int Lines = 1>
  HWY_INLINE void step() {
    for (int l = 0; l < Lines; ++l) __builtin_prefetch(at_ + 64 * l, 0, 2);
    at_ = at_ + 64 * Lines < end_ ? at_ + 64 * Lines : at_;  // the last lines again and again cost nothing
  }

 private:
  static inline const char kNothing = 0;
  const char *at_ = &kNothing, *end_ = &kNothing;
};

// A tensor's rows as kernels see them: where a row lies, or a copy of it.
struct Source {
  Rows rows;
  Storage storage = Storage::float32;
  int64_t dim = 0;
  bool is_direct = false;  // rows can be read where they are

  Source(const Rows& tensor, Storage s, int64_t d)
      : rows(tensor), storage(s), dim(d), is_direct(s == Storage::float32 && d % kLanes == 0) {}

  const char* at(int64_t row, int64_t head) const {
    return static_cast<const char*>(rows.data) +
           (row * rows.row_stride + head * rows.head_stride) * (storage == Storage::float32 ? 4 : 2);
  }
  int64_t head_bytes() const { return rows.head_stride * (storage == Storage::float32 ? 4 : 2); }
  HWY_INLINE const float* read(int64_t row, int64_t head, float* copy) const {
    if (HWY_LIKELY(is_direct)) return reinterpret_cast<const float*>(at(row, head));
    widen_row(storage, at(row, head), dim, copy);
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
    if (!is_direct) narrow_row(storage, copy, dim, const_cast<char*>(at(r, head)));
  }
};

// to = scale · Σ weight[r] rows[r]; weights may be null: ones.
inline void pool_rows(const float* const* rows, const float* weights, int64_t count, float scale, int64_t channels,
                      float* to) {
  const F f;
  int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) {
    V sum0 = hn::Zero(f), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (int64_t r = 0; r < count; ++r) {
      const float* row = rows[r] + c;
      const V weight = hn::Set(f, weights ? weights[r] : 1.0f);
      sum0 = hn::MulAdd(hn::LoadU(f, row), weight, sum0);
      sum1 = hn::MulAdd(hn::LoadU(f, row + kLanes), weight, sum1);
      sum2 = hn::MulAdd(hn::LoadU(f, row + 2 * kLanes), weight, sum2);
      sum3 = hn::MulAdd(hn::LoadU(f, row + 3 * kLanes), weight, sum3);
    }
    const V factor = hn::Set(f, scale);
    hn::StoreU(hn::Mul(sum0, factor), f, to + c);
    hn::StoreU(hn::Mul(sum1, factor), f, to + c + kLanes);
    hn::StoreU(hn::Mul(sum2, factor), f, to + c + 2 * kLanes);
    hn::StoreU(hn::Mul(sum3, factor), f, to + c + 3 * kLanes);
  }
  for (; c < channels; c += kLanes) {
    V sum = hn::Zero(f);
    for (int64_t r = 0; r < count; ++r) {
      sum = hn::MulAdd(hn::LoadU(f, rows[r] + c), hn::Set(f, weights ? weights[r] : 1.0f), sum);
    }
    hn::StoreU(hn::Mul(sum, hn::Set(f, scale)), f, to + c);
  }
}

HWY_INLINE V dot_lanes(const float* a, const float* b, int64_t channels) {
  const F f;
  V sum = hn::Zero(f);
  for (int64_t c = 0; c < channels; c += kLanes) sum = hn::MulAdd(hn::LoadU(f, a + c), hn::LoadU(f, b + c), sum);
  return sum;
}
inline float dot_row(const float* a, const float* b, int64_t channels) {
  return sum_of_lanes(dot_lanes(a, b, channels));
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
