// Products of tiles of 16 rows and 64 channels on the matrix units.
//
// A tile lies in shared memory, 128 bytes a row, its chunks of 16 bytes exchanged so that eight rows of one chunk touch
// all banks. Float32 rows are two tiles of the half type, `high` + `low`: three products of those are as exact as is
// seen in results of the half type. A 16 × 16 result has row lane / 4 + 8 · h and column 8 · n + 2 · (lane % 4) + j in
// entry [n][2 · h + j].
#pragma once

#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {

constexpr int kRows = 16, kChannels = 64, kRowBytes = 128, kTileBytes = kRows * kRowBytes;

__device__ __forceinline__ char* cell(char* tile, int row, int chunk) {
  return tile + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

struct Tile {
  char* high;
  char* low;  // only where split
};

// c += a · bᵀ over the channels
template <class T, bool kSplit>
__device__ __forceinline__ void add_scores(float (&c)[2][4], Tile a, Tile b) {
  const int lane = lane_of_thread(), part = lane / 8;
  const int a_row = lane % 8 + 8 * (part % 2), b_row = lane % 8 + 8 * (part / 2);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int a_chunk = 2 * step + part / 2, b_chunk = 2 * step + part % 2;
    uint32_t a_high[4], b_high[4];
    load_matrices<false>(a_high, cell(a.high, a_row, a_chunk));
    load_matrices<false>(b_high, cell(b.high, b_row, b_chunk));
    multiply_add<T>(c[0], a_high, b_high[0], b_high[1]);
    multiply_add<T>(c[1], a_high, b_high[2], b_high[3]);
    if constexpr (kSplit) {
      uint32_t a_low[4], b_low[4];
      load_matrices<false>(a_low, cell(a.low, a_row, a_chunk));
      load_matrices<false>(b_low, cell(b.low, b_row, b_chunk));
      multiply_add<T>(c[0], a_low, b_high[0], b_high[1]);
      multiply_add<T>(c[1], a_low, b_high[2], b_high[3]);
      multiply_add<T>(c[0], a_high, b_low[0], b_low[1]);
      multiply_add<T>(c[1], a_high, b_low[2], b_low[3]);
    }
  }
}

// A 16 × 16 matrix as the left side of a product.
struct Weights {
  uint32_t high[4], low[4];
};

template <class T>
__device__ __forceinline__ Weights split_weights(const float (&x)[2][4]) {
  Weights w;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float a = x[n][2 * h], b = x[n][2 * h + 1];
      w.high[2 * n + h] = pack2<T>(a, b);
      const float2 rounded = unpack2<T>(w.high[2 * n + h]);
      w.low[2 * n + h] = pack2<T>(a - rounded.x, b - rounded.y);
    }
  }
  return w;
}

__device__ __forceinline__ Weights transpose(const Weights& w) {
  Weights result;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int from = i == 1 ? 2 : i == 2 ? 1 : i;
    result.high[i] = transpose_matrix(w.high[from]);
    result.low[i] = transpose_matrix(w.low[from]);
  }
  return result;
}

// c += w · b, over the 16 rows of b; of its channels those from 8 · first on
template <class T, bool kSplit, int kCount>
__device__ __forceinline__ void add_product(float (&c)[kCount][4], const Weights& w, Tile b, int first = 0) {
  const int lane = lane_of_thread(), part = lane / 8;
  const int row = lane % 8 + 8 * (part % 2);
#pragma unroll
  for (int n = 0; n < kCount; n += 2) {
    uint32_t high[4];
    load_matrices<true>(high, cell(b.high, row, first + n + part / 2));
    multiply_add<T>(c[n], w.high, high[0], high[1]);
    multiply_add<T>(c[n + 1], w.high, high[2], high[3]);
    multiply_add<T>(c[n], w.low, high[0], high[1]);
    multiply_add<T>(c[n + 1], w.low, high[2], high[3]);
    if constexpr (kSplit) {
      uint32_t low[4];
      load_matrices<true>(low, cell(b.low, row, first + n + part / 2));
      multiply_add<T>(c[n], w.high, low[0], low[1]);
      multiply_add<T>(c[n + 1], w.high, low[2], low[3]);
    }
  }
}

// The same for weights of any size: numbers of float16 end at 65504.
template <class T, bool kSplit, bool kTranspose>
__device__ __forceinline__ void add_gradient(float (&c)[8][4], const float (&x)[2][4], Tile b) {
  if constexpr (std::is_same_v<T, __half>) {
    float largest = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x[n][i]));
    }
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    const float factor = largest > 0 ? 1024.0f / largest : 1.0f, inverse = largest > 0 ? largest / 1024.0f : 1.0f;
    float scaled[2][4], sum[8][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scaled[n][i] = x[n][i] * factor;
    }
    const Weights w = split_weights<T>(scaled);
    add_product<T, kSplit>(sum, kTranspose ? transpose(w) : w, b);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[n][i] += inverse * sum[n][i];
    }
  } else {
    const Weights w = split_weights<T>(x);
    add_product<T, kSplit>(c, kTranspose ? transpose(w) : w, b);
  }
}

// Of a row that four neighbouring lanes hold.
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Brings `count` rows of a tensor into a tile, in the background; the rest is 0.
template <class T>
__device__ __forceinline__ void load_tile(char* tile, const Rows& rows, int64_t first, int count, int head) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int index = lane_of_thread() + 32 * i, row = index / 8, chunk = index % 8;
    char* to = cell(tile, row, chunk);
    if (row < count) {
      const T* from = static_cast<const T*>(rows.data) + (first + row) * rows.row_stride + head * rows.head_stride;
      copy_async16(to, from + 8 * chunk);
    } else {
      zero16(to);
    }
  }
}

// A result as rows of a tensor, through a tile of shared memory, so that whole lines are written.
template <class T>
__device__ __forceinline__ void store_tile(const Rows& rows, int64_t first, int count, int head, char* tile,
                                           const float (&c)[8][4]) {
  const int lane = lane_of_thread();
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      char* to = cell(tile, lane / 4 + 8 * h, n) + 4 * (lane % 4);
      *reinterpret_cast<uint32_t*>(to) = pack2<T>(c[n][2 * h], c[n][2 * h + 1]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int index = lane + 32 * i, row = index / 8, chunk = index % 8;
    if (row >= count) continue;
    T* to = static_cast<T*>(rows.data) + (first + row) * rows.row_stride + head * rows.head_stride;
    *reinterpret_cast<uint4*>(to + 8 * chunk) = *reinterpret_cast<const uint4*>(cell(tile, row, chunk));
  }
}

// Channels 2 · lane and 2 · lane + 1 of a row of a tile.
template <class T>
__device__ __forceinline__ float2 read_pair(const char* tile, int row) {
  const char* from = cell(const_cast<char*>(tile), row, lane_of_thread() / 4) + 4 * (lane_of_thread() % 4);
  return unpack2<T>(*reinterpret_cast<const uint32_t*>(from));
}
template <class T>
__device__ __forceinline__ float2 read_pair(Tile tile, int row) {
  const float2 high = read_pair<T>(tile.high, row), low = read_pair<T>(tile.low, row);
  return make_float2(high.x + low.x, high.y + low.y);
}
template <class T>
__device__ __forceinline__ void write_pair(Tile tile, int row, float2 x) {
  const int64_t offset = cell(tile.high, row, lane_of_thread() / 4) + 4 * (lane_of_thread() % 4) - tile.high;
  const uint32_t high = pack2<T>(x.x, x.y);
  const float2 rounded = unpack2<T>(high);
  *reinterpret_cast<uint32_t*>(tile.high + offset) = high;
  *reinterpret_cast<uint32_t*>(tile.low + offset) = pack2<T>(x.x - rounded.x, x.y - rounded.y);
}

}  // namespace ramify::cuda
