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

// Where a chunk of a row lies. Tiles begin at multiples of 128 bytes, so the same row's chunk c is at
// cell(tile, row, 0) ^ (c << 4).
__device__ __forceinline__ uint32_t cell(uint32_t tile, int row, int chunk) {
  return tile + row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

struct Tile {
  uint32_t high;
  uint32_t low = 0;  // only where split
};

// The row and chunk that a lane names to load_matrices, for chunks 0 and 1: of the left side of a product, which is
// also that of a transposed right side, and of the right side.
__device__ __forceinline__ uint32_t left_cell(uint32_t tile) {
  const int lane = lane_of_thread(), row = lane % 16;
  return cell(tile, row, lane / 16);
}
__device__ __forceinline__ uint32_t right_cell(uint32_t tile) {
  const int lane = lane_of_thread(), row = lane % 8 + 8 * (lane / 16);
  return cell(tile, row, lane / 8 % 2);
}

// c += a · bᵀ over the channels
template <class T, bool kSplit>
__device__ __forceinline__ void add_scores(float (&c)[2][4], Tile a, Tile b) {
  const uint32_t left = left_cell(a.high), right = right_cell(b.high);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t a_high[4], b_high[4];
    load_matrices<false>(a_high, left ^ (step << 5));
    load_matrices<false>(b_high, right ^ (step << 5));
    multiply_add<T>(c[0], a_high, b_high[0], b_high[1]);
    multiply_add<T>(c[1], a_high, b_high[2], b_high[3]);
    if constexpr (kSplit) {
      uint32_t a_low[4], b_low[4];
      load_matrices<false>(a_low, (left ^ (step << 5)) + (a.low - a.high));
      load_matrices<false>(b_low, (right ^ (step << 5)) + (b.low - b.high));
      multiply_add<T>(c[0], a_low, b_high[0], b_high[1]);
      multiply_add<T>(c[1], a_low, b_high[2], b_high[3]);
      multiply_add<T>(c[0], a_high, b_low[0], b_low[1]);
      multiply_add<T>(c[1], a_high, b_low[2], b_low[3]);
    }
  }
}

// What rounding left of two numbers.
template <class T>
__device__ __forceinline__ uint32_t rest_of(float x, float y, uint32_t rounded) {
  const float2 taken = unpack2<T>(rounded);
  return pack2<T>(x - taken.x, y - taken.y);
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
      w.low[2 * n + h] = rest_of<T>(a, b, w.high[2 * n + h]);
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

// c += w · b, over the 16 rows of b
template <class T, bool kSplit>
__device__ __forceinline__ void add_product(float (&c)[8][4], const Weights& w, Tile b) {
  const uint32_t at = left_cell(b.high);
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
    uint32_t high[4];
    load_matrices<true>(high, at ^ (n << 4));
    multiply_add<T>(c[n], w.high, high[0], high[1]);
    multiply_add<T>(c[n + 1], w.high, high[2], high[3]);
    multiply_add<T>(c[n], w.low, high[0], high[1]);
    multiply_add<T>(c[n + 1], w.low, high[2], high[3]);
    if constexpr (kSplit) {
      uint32_t low[4];
      load_matrices<true>(low, (at ^ (n << 4)) + (b.low - b.high));
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

// A lane's chunk of rows lane / 8, + 4, + 8, + 12: where it lies in shared memory, and in a tensor.
__device__ __forceinline__ uint32_t lane_cell(uint32_t tile, int i) {
  return (cell(tile, lane_of_thread() / 8, lane_of_thread() % 8) ^ ((i & 1) << 6)) + i * 4 * kRowBytes;
}
template <class T>
__device__ __forceinline__ T* lane_chunk(const Rows& rows, int64_t first, int head) {
  T* const begin = static_cast<T*>(rows.data) + first * rows.row_stride + head * rows.head_stride;
  return begin + int64_t{lane_of_thread() / 8} * static_cast<int>(rows.row_stride) + 8 * (lane_of_thread() % 8);
}

// Brings `count` rows of a tensor into a tile, in the background; the rest is 0. `from` is the lane's chunk of the
// first row that it has, its next ones are `step` apart.
template <class T>
__device__ __forceinline__ void load_tile(uint32_t tile, const T* from, int64_t step, int count) {
  if (count == kRows) {
#pragma unroll
    for (int i = 0; i < 4; ++i, from += step) copy_async16(lane_cell(tile, i), from);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i, from += step) {
    lane_of_thread() / 8 + 4 * i < count ? copy_async16(lane_cell(tile, i), from) : zero16(lane_cell(tile, i));
  }
}
template <class T>
__device__ __forceinline__ void load_tile(uint32_t tile, const Rows& rows, int64_t first, int count, int head) {
  load_tile<T>(tile, lane_chunk<T>(rows, first, head), 4 * rows.row_stride, count);
}

// A result as a tile.
template <class T>
__device__ __forceinline__ void put_tile(uint32_t tile, const float (&c)[8][4]) {
  const uint32_t own = cell(tile, lane_of_thread() / 4, 0) + 4 * (lane_of_thread() % 4);
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shared_at<uint32_t>((own ^ (n << 4)) + h * 8 * kRowBytes) = pack2<T>(c[n][2 * h], c[n][2 * h + 1]);
    }
  }
  __syncwarp();
}
// A tile as rows of a tensor, whole lines.
template <class T>
__device__ __forceinline__ void write_tile(const Rows& rows, int64_t first, int count, int head, uint32_t tile) {
  T* to = lane_chunk<T>(rows, first, head);
  const int64_t step = 4 * rows.row_stride;
#pragma unroll
  for (int i = 0; i < 4; ++i, to += step) {
    if (lane_of_thread() / 8 + 4 * i < count) {
      *reinterpret_cast<uint4*>(to) = shared_at<uint4>(lane_cell(tile, i));
    }
  }
}
// A result as rows of a tensor, through a tile.
template <class T>
__device__ __forceinline__ void store_tile(const Rows& rows, int64_t first, int count, int head, uint32_t tile,
                                           const float (&c)[8][4]) {
  put_tile<T>(tile, c);
  write_tile<T>(rows, first, count, head, tile);
}

// The same without shared memory: neighbouring lanes exchange halves, so that each has four channels.
template <class T>
__device__ __forceinline__ void store_directly(const Rows& rows, int64_t first, int count, int head,
                                               const float (&c)[8][4]) {
  const int lane = lane_of_thread();
  const bool is_odd = lane % 2 == 1;
  T* to = static_cast<T*>(rows.data) + (first + lane / 4) * rows.row_stride + head * rows.head_stride +
          4 * (lane % 4 / 2) + (is_odd ? 8 : 0);
#pragma unroll
  for (int h = 0; h < 2; ++h, to += 8 * rows.row_stride) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      const uint32_t even = pack2<T>(c[n][2 * h], c[n][2 * h + 1]),
                     odd = pack2<T>(c[n + 1][2 * h], c[n + 1][2 * h + 1]);
      const uint32_t other = __shfl_xor_sync(0xffffffffu, is_odd ? even : odd, 1);
      if (lane / 4 + 8 * h >= count) continue;
      *reinterpret_cast<uint2*>(to + 8 * n) = is_odd ? make_uint2(other, odd) : make_uint2(even, other);
    }
  }
}

}  // namespace ramify::cuda
