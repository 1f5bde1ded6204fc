// Numbers of the storage types, one and two at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace ramify::cuda {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return __float2half_rn(x);
  }
}

// Two numbers of a half type in a register.
template <class T>
__device__ __forceinline__ uint32_t pack2(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}
template <class T>
__device__ __forceinline__ float2 unpack2(uint32_t pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // as whole registers: halves would be kept in one each
    return make_float2(__int_as_float(static_cast<int>(pair << 16)),
                       __int_as_float(static_cast<int>(pair & 0xffff0000)));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  }
}

}  // namespace ramify::cuda
