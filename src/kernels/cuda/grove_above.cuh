// What comes down to a leaf of a grove.
#pragma once

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

// Eight channels of y and pi above a leaf.
struct Above {
  float y[8] = {}, mass = 1;

  Above() = default;
  __device__ Above(const Call& call, int head, int chunk, LeafAbove above) {
    if (above.place >= 0) add(call.place_y, call.place_local_mass, above.place * int64_t{call.heads} + head, chunk);
    if (above.slot >= 0) add(call.y, call.mass, above.slot * int64_t{call.heads} + head, chunk);
  }
  __device__ Above(const float* its_y, int64_t row, int chunk, float its_mass) : mass(its_mass) {
    read(its_y, row, chunk, y);
  }
  // weight · a(C) of a place that y above it has not yet come to
  __device__ void give(const float* values, int64_t row, int chunk, float weight) {
    float own[8];
    read(values, row, chunk, own);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] += weight * own[i];
  }
  // y(G) + pi(G) · (y + pi · x)
  __device__ void add(const float* its_y, const float* its_mass, int64_t row, int chunk) {
    const float pi = its_mass[row];
    float z[8];
    read(its_y, row, chunk, z);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = z[i] + pi * y[i];
    mass *= pi;
  }
  // y + pi · x
  template <class T>
  __device__ uint4 chunk(uint4 x) const {
    return make_uint4(pair<T>(0, x.x), pair<T>(1, x.y), pair<T>(2, x.z), pair<T>(3, x.w));
  }

 private:
  __device__ static void read(const float* rows, int64_t row, int chunk, float (&x)[8]) {
    const auto* from = reinterpret_cast<const float4*>(rows + row * kChannels + 8 * chunk);
    const float4 a = from[0], b = from[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
  }
  // of the n-th two channels
  template <class T>
  __device__ uint32_t pair(int n, uint32_t x) const {
    const float2 a = unpack2<T>(x);
    return pack2<T>(y[2 * n] + mass * a.x, y[2 * n + 1] + mass * a.y);
  }
};

}  // namespace ramify::cuda
