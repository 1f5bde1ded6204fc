// The vectors that all CPU kernels compute with, and the few functions of numbers they need. Included once for each
// instruction set (Highway's foreach_target).
#if defined(RAMIFY_CPU_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RAMIFY_CPU_SIMD_LANES_INL_H_
#undef RAMIFY_CPU_SIMD_LANES_INL_H_
#else
#define RAMIFY_CPU_SIMD_LANES_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"

// Loops over registers, of at most 16 steps; what they index must not stay in memory.
#ifndef RAMIFY_UNROLL
#define RAMIFY_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
using M = hn::Mask<F>;
inline constexpr int64_t kLanes = hn::MaxLanes(F());
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Registers: AVX-512 and NEON have 32, the others 16.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

// Whether a multiplication and an addition are rounded once.
inline constexpr bool kHasFusedMultiply = HWY_TARGET != HWY_SSE4;

// exp(x) for x <= 0 or a little above. 0 for -inf; NaN stays NaN, so that a broken input is seen in the output.
HWY_INLINE V exp_lanes(V x) {
  const F f;
  const M is_small = hn::Lt(x, hn::Set(f, -87.0f));  // the result is 0 there (it would be denormal soon)
  const V k = hn::Round(hn::Mul(x, hn::Set(f, 1.44269504088896341f)));
  V r;
  if constexpr (kHasFusedMultiply) {  // k ln 2 is not rounded, and ln 2 is good to 3e-9 of it
    r = hn::NegMulAdd(k, hn::Set(f, 0.693147181f), x);
  } else {  // Cody-Waite: ln 2 in two parts
    r = hn::NegMulAdd(k, hn::Set(f, 0.693359375f), x);
    r = hn::NegMulAdd(k, hn::Set(f, -2.12194440e-4f), r);
  }
  // exp(r) for |r| <= ln 2 / 2, by least relative error: 4e-9 and the rounding
  V p = hn::Set(f, 1.3814542e-3f);
  p = hn::MulAdd(p, r, hn::Set(f, 8.368745e-3f));
  p = hn::MulAdd(p, r, hn::Set(f, 4.166839e-2f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.6666521e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 4.9999994e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.0f));
  // p 2^k
#if HWY_TARGET <= HWY_AVX3
  return V{_mm512_maskz_scalef_ps(hn::Not(is_small).raw, p.raw, k.raw)};
#else
  const hn::RebindToSigned<F> i;
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(i, k), hn::Set(i, 127)));
  return hn::IfThenZeroElse(is_small, hn::Mul(p, hn::BitCast(f, exponent)));
#endif
}

// exp(score - shift), and 0 where the score is -inf, which hides a key: also where the shift is NaN.
HWY_INLINE V exp_of_score(V score, V shift) {
  const F f;
  return hn::IfThenZeroElse(hn::Eq(score, hn::Set(f, kMinusInfinity)), exp_lanes(hn::Sub(score, shift)));
}

// log(x) for x > 0, normal; NaN stays NaN.
HWY_INLINE V log_lanes(V x) {
  const F f;
  const hn::RebindToSigned<F> i;
  const auto bits = hn::BitCast(i, x);
  // x = 2^e m with m in [sqrt(1/2), sqrt(2))
  const auto shifted = hn::Sub(bits, hn::Set(i, 0x3f3504f3));
  const V e = hn::ConvertTo(f, hn::ShiftRight<23>(shifted));
  const auto mantissa = hn::Add(hn::And(shifted, hn::Set(i, 0x007fffff)), hn::Set(i, 0x3f3504f3));
  const V r = hn::Sub(hn::BitCast(f, mantissa), hn::Set(f, 1.0f));
  V p = hn::Set(f, 7.0376836292e-2f);  // Cephes' logf
  p = hn::MulAdd(p, r, hn::Set(f, -1.1514610310e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.1676998740e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, -1.2420140846e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.4249322787e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, -1.6668057665e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 2.0000714765e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, -2.4999993993e-1f));
  p = hn::MulAdd(p, r, hn::Set(f, 3.3333331174e-1f));
  const V r2 = hn::Mul(r, r);
  V tail = hn::Mul(hn::Mul(p, r), r2);
  tail = hn::MulAdd(e, hn::Set(f, -2.12194440e-4f), tail);
  tail = hn::NegMulAdd(hn::Set(f, 0.5f), r2, tail);
  const V result = hn::MulAdd(e, hn::Set(f, 0.693359375f), hn::Add(r, tail));
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

inline float sum_of_lanes(V v) {
  return hn::GetLane(hn::SumOfLanes(F(), v));
}

// The first `count` lanes; all of them from kLanes on.
HWY_INLINE M first_lanes(int64_t count) {
  return hn::FirstN(F(), static_cast<size_t>(count < kLanes ? count : kLanes));
}

// A number that something looks at with this weight: 0 where that is 0, also if the number is infinite or NaN.
HWY_INLINE V where_seen(V weight, V number) {
  return hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(F())), number);
}

// Only these lanes are touched in memory: another thread may be at work on what follows. Highway's masked loads and
// stores promise that for x86 from AVX2 on; elsewhere they take whole aligned vectors.
inline constexpr bool kHasMaskedMemory = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

HWY_INLINE V load_first(const float* from, int64_t count) {
  if (count >= kLanes) return hn::LoadU(F(), from);
  if constexpr (kHasMaskedMemory) return hn::MaskedLoad(first_lanes(count), F(), from);
  HWY_ALIGN float lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(F(), lanes);
}
HWY_INLINE void store_first(V v, float* to, int64_t count) {
  if (count >= kLanes) {
    hn::StoreU(v, F(), to);
  } else if constexpr (kHasMaskedMemory) {
    hn::BlendedStore(v, first_lanes(count), F(), to);
  } else {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, F(), lanes);
    std::memcpy(to, lanes, count * sizeof(float));
  }
}

// Rows of a multiple of so many channels are taken where they lie, also if their last vector is not full.
inline constexpr int64_t kChannelStep = kLanes < 8 ? kLanes : 8;
inline constexpr bool kHasPartVectors = kLanes > kChannelStep;

// A vector of such a row with `rest` channels until its end: what is behind it is read as 0 and not written.
HWY_INLINE V load_channels(const float* from, int64_t rest) {
  if constexpr (kHasPartVectors) return hn::MaskedLoad(first_lanes(rest), F(), from);
  return hn::LoadU(F(), from);
}
HWY_INLINE void store_channels(V v, float* to, int64_t rest) {
  if constexpr (kHasPartVectors) return hn::BlendedStore(v, first_lanes(rest), F(), to);
  hn::StoreU(v, F(), to);
}

// Channels [begin, begin + kLanes) of rows, or those that are left.
struct RowPart {
  int64_t begin, rest;

  HWY_INLINE V load(const float* row) const { return load_channels(row + begin, rest); }
  HWY_INLINE void store(V v, float* row) const { store_channels(v, row + begin, rest); }
};
template <class Visit>
HWY_INLINE void for_each_vector(int64_t channels, const Visit& visit) {
  for (int64_t c = 0; c < channels; c += kLanes) visit(RowPart{c, channels - c});
}

}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
