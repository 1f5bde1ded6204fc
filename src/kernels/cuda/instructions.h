// The instructions and launches that kernels use, each behind a plain function. tests/cuda_emulator has the same
// functions for the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/numbers.h"

namespace ramify::cuda {

// Powers and logarithms of 2, to about 22 bits.
__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float fast_log2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x, to about 23 bits.
__device__ __forceinline__ float fast_inverse(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}

// A block's dynamic shared memory, by bytes from its beginning: pointers would be twice as wide.
__device__ __forceinline__ char* dynamic_shared() {
  extern __shared__ __align__(128) char memory[];
  return memory;
}
template <class Value>
__device__ __forceinline__ Value& shared_at(uint32_t offset) {
  return *reinterpret_cast<Value*>(dynamic_shared() + offset);
}
__device__ __forceinline__ uint32_t shared_address(uint32_t offset) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared())) + offset;
}

// 16 bytes from global to shared memory, past the first-level cache, in the background.
__device__ __forceinline__ void copy_async16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// 8 bytes likewise, through that cache.
__device__ __forceinline__ void copy_async8(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// 16 bytes to global memory at once, which the compiler would part where they come from arithmetic.
__device__ __forceinline__ void store16(void* to, uint4 x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}
__device__ __forceinline__ void zero16(uint32_t to) {
  shared_at<uint4>(to) = make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Four 8 × 8 matrices of 16-bit numbers; lane l says where row l % 8 of matrix l / 8 is.
template <bool kTranspose>
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t row) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

// An 8 × 8 matrix of 16-bit numbers across the warp, transposed.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t a) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(result) : "r"(a));
  return result;
}

// c [16, 8] += a [16, 16] · b [16, 8], in float32.
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

inline void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("cuda: ") + what + ": " + cudaGetErrorString(status));
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  require(cudaGetDevice(&device), "device");
  require(cudaDeviceGetAttribute(&value, attribute, device), "device");
  return value;
}

// Bytes of shared memory that a block of the current device can have.
inline size_t most_shared_memory() {
  return static_cast<size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

inline int64_t num_multiprocessors() {
  return device_attribute(cudaDevAttrMultiProcessorCount);
}

// Every thread of a kernel calls this before it reads or writes global memory. Only the forest's tables may be read
// before it: no kernel ever writes them. They are copied to the device, and a kernel does not overtake a copy.
__device__ __forceinline__ void wait_for_kernels_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Blocks come to the multiprocessors while the last ones of the kernel before still run (programmatic dependent launch,
// from sm_90 on), and wait there until it is complete and what it wrote is seen. Then all kernels before that one are
// complete, too, since it was not before its own threads had waited. So results of any of them may be read, and what
// they read, or what a call gave back and the next one got, may be written. A kernel lets the next one come behind its
// own wait: when a block begins, what is two kernels back is complete, and with it the tables. Kernels of others come
// when ours are complete; ours come when theirs are, or earlier, if those wait likewise.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared, cudaStream_t stream,
            Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
  if (shared > (48 << 10)) {
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
            "shared memory");
  }
  if (shared > (8 << 10)) {  // so that as many blocks as fit share a multiprocessor
    require(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "shared memory");
  }
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared, config.stream = stream;
  config.attrs = &early, config.numAttrs = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 ? 1 : 0;
  require(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "launch");
}

}  // namespace ramify::cuda
