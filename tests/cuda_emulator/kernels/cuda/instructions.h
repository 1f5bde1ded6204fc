// Stands in for src/kernels/cuda/instructions.h where kernels are emulated: the same functions, in plain C++. What a
// lane holds of a matrix is as in the PTX manual, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
#pragma once

#include "cuda_emulator/block.h"
#include "kernels/cuda/numbers.h"

namespace ramify::cuda {

inline float fast_exp2(float x) {
  return std::exp2(x);
}
inline float fast_log2(float x) {
  return std::log2(x);
}
inline float fast_inverse(float x) {
  return 1 / x;
}

template <class Value>
Value& shared_at(uint32_t offset) {
  return *reinterpret_cast<Value*>(cuda_emulator::shared_bytes(offset, sizeof(Value), alignof(Value)));
}

inline void copy_async16(uint32_t to, const void* from) {
  cuda_emulator::start_copy(to, from, 16);
}
inline void copy_async8(uint32_t to, const void* from) {
  cuda_emulator::start_copy(to, from, 8);
}
inline void store16(void* to, uint4 x) {
  *static_cast<uint4*>(to) = x;
}
inline void zero16(uint32_t to) {
  shared_at<uint4>(to) = make_uint4(0, 0, 0, 0);
}
inline void copy_async_commit() {
  cuda_emulator::commit_copies();
}
template <int kPending>
void copy_async_wait() {
  cuda_emulator::wait_for_copies(kPending);
}

struct FourRegisters {
  uint32_t x[4];
};

template <bool kTranspose>
void load_matrices(uint32_t (&r)[4], uint32_t row) {
  const auto loaded = cuda_emulator::exchange<FourRegisters>(row, [](auto rows, auto taken) {
    for (int m = 0; m < 4; ++m) {
      uint16_t matrix[8][8];
      for (int i = 0; i < 8; ++i) std::memcpy(matrix[i], cuda_emulator::shared_bytes(rows[8 * m + i], 16, 16), 16);
      for (int lane = 0; lane < cuda_emulator::kWarp; ++lane) {
        const int i = lane / 4, j = 2 * (lane % 4);
        const uint32_t low = kTranspose ? matrix[j][i] : matrix[i][j];
        const uint32_t high = kTranspose ? matrix[j + 1][i] : matrix[i][j + 1];
        taken[lane].x[m] = low | high << 16;
      }
    }
  });
  std::copy_n(loaded.x, 4, r);
}

inline uint32_t transpose_matrix(uint32_t a) {
  return cuda_emulator::exchange<uint32_t>(a, [](auto given, auto taken) {
    const auto entry = [&](int i, int j) { return given[4 * i + j / 2] >> 16 * (j % 2) & 0xffff; };
    for (int lane = 0; lane < cuda_emulator::kWarp; ++lane) {
      const int i = lane / 4, j = 2 * (lane % 4);
      taken[lane] = entry(j, i) | entry(j + 1, i) << 16;
    }
  });
}

struct ProductRegisters {
  float c[4];
  uint32_t a[4], b[2];
};

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Result {
    float x[4];
  };
  const ProductRegisters registers = {{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto result = cuda_emulator::exchange<Result>(registers, [](auto given, auto taken) {
    float left[16][16], right[8][16];  // right is transposed
    for (int lane = 0; lane < cuda_emulator::kWarp; ++lane) {
      const int row = lane / 4, column = 2 * (lane % 4);
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack2<T>(given[lane].a[i]);
        float* to = &left[row + 8 * (i % 2)][column + 8 * (i / 2)];
        to[0] = pair.x, to[1] = pair.y;
      }
      for (int i = 0; i < 2; ++i) {
        const float2 pair = unpack2<T>(given[lane].b[i]);
        right[row][column + 8 * i] = pair.x, right[row][column + 8 * i + 1] = pair.y;
      }
    }
    for (int lane = 0; lane < cuda_emulator::kWarp; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += left[row][k] * right[column][k];
        taken[lane].x[i] = given[lane].c[i] + sum;
      }
    }
  });
  std::copy_n(result.x, 4, c);
}

inline void require(cudaError_t, const char*) {}  // nothing fails here but cudaMalloc, which kernels do not call

inline size_t most_shared_memory() {
  return cuda_emulator::kSharedMemory;
}

// Few, so that small forests have more blocks.
inline int64_t num_multiprocessors() {
  return 2;
}

inline int64_t threads_that_waited = 0;
inline void wait_for_kernels_before() {
  ++threads_that_waited;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared, cudaStream_t,
            Arguments... arguments) {
  threads_that_waited = 0;
  auto body = [&] { kernel(static_cast<Parameters>(arguments)...); };
  cuda_emulator::run_blocks(
      grid, threads, shared, [](void* erased) { (*static_cast<decltype(body)*>(erased))(); }, &body);
  if (threads_that_waited != int64_t{grid.x} * grid.y * threads) {
    cuda_emulator::fail("or another did not wait for the kernels before");
  }
}

}  // namespace ramify::cuda
