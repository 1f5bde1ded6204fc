// What the kernels use of CUDA's header of this name.
#pragma once

#include <cuda_runtime.h>

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half x) {
  const uint32_t size = (x.bits & 0x7fffu) << 13;
  // a product with a power of 2 moves the exponent, also of what is subnormal
  const float value = size < 0x7c00u << 13 ? std::bit_cast<float>(size) * 0x1p112f
                                           : std::bit_cast<float>(size | 0x7f800000u);  // infinite or NaN
  return x.bits & 0x8000u ? -value : value;
}
inline __half __float2half_rn(float x) {
  const float size = std::fabs(x);
  uint32_t bits = 0x7fff;
  if (size >= 65520) {
    bits = 0x7c00;
  } else if (!std::isnan(x)) {
    // the last place of `large` is that of the result, so that the sum rounds to it
    const uint32_t exponent = std::max(std::bit_cast<uint32_t>(size) & 0x7f800000u, 113u << 23);
    const auto large = std::bit_cast<float>(exponent + (13u << 23));
    bits = std::bit_cast<uint32_t>((size + large - large) * 0x1p-112f) >> 13;
  }
  return {static_cast<uint16_t>(bits | (std::signbit(x) ? 0x8000u : 0u))};
}
inline float2 __half22float2(__half2 pair) {
  return {__half2float(pair.x), __half2float(pair.y)};
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
