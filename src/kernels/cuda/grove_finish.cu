// Tied queries in groves, forward: what is above leaves comes to them.
#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {
namespace {

constexpr int kRowsOfBlock = 128, kRowsOfWarp = 16;

// Eight channels of y and pi above a leaf.
struct Above {
  float y[8], mass;

  __device__ Above(const Call& call, int head, int chunk, LeafAbove above) : mass(1) {
#pragma unroll
    for (float& x : y) x = 0;
    if (above.place >= 0) add(call.place_y, call.place_local_mass, above.place * int64_t{call.heads} + head, chunk);
    if (above.slot >= 0) add(call.y, call.mass, above.slot * int64_t{call.heads} + head, chunk);
  }
  // y(G) + pi(G) · (y + pi · x)
  __device__ void add(const float* its_y, const float* its_mass, int64_t row, int chunk) {
    const auto* from = reinterpret_cast<const float4*>(its_y + row * kChannels + 8 * chunk);
    const float pi = its_mass[row];
    const float4 a = from[0], b = from[1];
    const float z[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = z[i] + pi * y[i];
    mass *= pi;
  }
};

// out = y + pi · a(leaf), eight lanes a row. The last rows come first: the second-level cache may still have them.
template <class T>
__global__ void __launch_bounds__(256) finish_kernel(const __grid_constant__ Call call) {
  const HeadItem item = head_item(call);
  const int64_t block = gridDim.x / call.heads - 1 - item.item;
  const int lane = lane_of_thread(), chunk = lane % 8;
  const int64_t first = block * kRowsOfBlock + warp_of_thread() * kRowsOfWarp;
  if (first >= call.num_leaves) return;
  const T* value = lane_chunk<T>(call.value, first, item.head);
  T* out = lane_chunk<T>(call.out, first, item.head);
  LeafAbove above[4];
  uint4 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = first + lane / 8 + 4 * i;
    if (row < call.num_leaves) above[i] = call.leaf_above[row];
    const bool has_any = above[i].place >= 0 || above[i].slot >= 0;
    x[i] = has_any ? *reinterpret_cast<const uint4*>(value + 4 * i * call.value.row_stride) : make_uint4(0, 0, 0, 0);
  }
  LeafAbove last = above[0];
  Above from(call, item.head, chunk, last);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (above[i].place < 0 && above[i].slot < 0) continue;
    if (above[i].place != last.place || above[i].slot != last.slot) {
      last = above[i];
      from = Above(call, item.head, chunk, last);
    }
    uint32_t* const words = &x[i].x;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 a = unpack2<T>(words[w]);
      words[w] = pack2<T>(from.y[2 * w] + from.mass * a.x, from.y[2 * w + 1] + from.mass * a.y);
    }
    *reinterpret_cast<uint4*>(out + 4 * i * call.out.row_stride) = x[i];
  }
}

}  // namespace

void groves_finish(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  if (!params.walk.totals.has_above) return;
  const int64_t blocks = (call.num_leaves + kRowsOfBlock - 1) / kRowsOfBlock;
  const dim3 grid(static_cast<unsigned>(blocks * call.heads));
  with_storage(params, [&]<class T>() { launch(finish_kernel<T>, grid, 256, 0, stream, call); });
}

}  // namespace ramify::cuda
