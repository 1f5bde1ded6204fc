// What the kernels and their tests use of CUDA's header of this name. Device memory is the host's.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cuda_emulator/block.h"

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after the other

#define threadIdx ramify::cuda_emulator::place.thread
#define blockIdx ramify::cuda_emulator::place.block
#define blockDim ramify::cuda_emulator::place.block_size
#define gridDim ramify::cuda_emulator::place.grid_size

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
using cudaStream_t = void*;

inline const char* cudaGetErrorString(cudaError_t) {
  return "out of memory";
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 227 << 10;  // kSharedMemory of block.h
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** data, size_t size) {
  const size_t whole = (size + 255) / 256 * 256;
  *data = std::aligned_alloc(256, whole);
  if (!*data) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, whole);  // NaN in every type
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  if (size > 0) std::memcpy(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* data, int value, size_t size, cudaStream_t) {
  if (size > 0) std::memset(data, value, size);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}

using dim3 = ramify::cuda_emulator::Size;
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

using std::max;
using std::min;
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> shift % 32);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selectors) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> 8 * (selectors >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}

template <class Value>
Value __ldcs(const Value* from) {
  return *from;
}

namespace ramify::cuda_emulator {

template <class Value>
struct FromLane {
  Value value;
  int lane;
};

// Outside of the warp a lane gets its own.
template <class Value>
Value shuffle(Value value, int lane) {
  return exchange<Value>(FromLane<Value>{value, lane}, [](auto given, auto taken) {
    for (int i = 0; i < kWarp; ++i) {
      const int from = given[i].lane;
      taken[i] = given[from >= 0 && from < kWarp ? from : i].value;
    }
  });
}

inline int lane() {
  return static_cast<int>(place.thread.x % kWarp);
}

}  // namespace ramify::cuda_emulator

// The kernels call these with all lanes only.
template <class Value>
Value __shfl_sync(unsigned, Value value, int lane) {
  return ramify::cuda_emulator::shuffle(value, lane % ramify::cuda_emulator::kWarp);
}
template <class Value>
Value __shfl_xor_sync(unsigned, Value value, int mask) {
  return ramify::cuda_emulator::shuffle(value, ramify::cuda_emulator::lane() ^ mask);
}
template <class Value>
Value __shfl_down_sync(unsigned, Value value, int steps) {
  return ramify::cuda_emulator::shuffle(value, ramify::cuda_emulator::lane() + steps);
}
inline unsigned __ballot_sync(unsigned, bool bit) {
  return ramify::cuda_emulator::exchange<unsigned>(bit, [](auto given, auto taken) {
    unsigned bits = 0;
    for (int i = 0; i < ramify::cuda_emulator::kWarp; ++i) bits |= static_cast<unsigned>(given[i]) << i;
    for (int i = 0; i < ramify::cuda_emulator::kWarp; ++i) taken[i] = bits;
  });
}
inline bool __all_sync(unsigned mask, bool bit) {
  return __ballot_sync(mask, bit) == 0xffffffffu;
}
inline void __syncwarp() {
  ramify::cuda_emulator::exchange<char>('\0', [](auto, auto) {});
}
inline void __syncthreads() {
  ramify::cuda_emulator::wait_for_block();
}
