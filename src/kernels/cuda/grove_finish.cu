// Tied queries in groves, forward: what is above groves comes to their leaves.
#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {
namespace {

// out = y(G) + pi(G) · out below the roots G of groves: a block a root and head, eight lanes a row.
template <class T>
__global__ void __launch_bounds__(256) finish_kernel(const __grid_constant__ Call call) {
  const HeadItem item = head_item(call);
  const GroveRoot root = call.grove_roots[item.item];
  const int64_t row = root.slot * call.heads + item.head;
  const float mass = call.mass[row];
  const int chunk = static_cast<int>(threadIdx.x) % 8;
  float y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = call.y[row * kChannels + 8 * chunk + i];
#pragma unroll 4
  for (int64_t i = threadIdx.x / 8; i < root.num_leaves; i += blockDim.x / 8) {
    auto* out = reinterpret_cast<uint4*>(static_cast<T*>(call.out.data) + (root.leaf_begin + i) * call.out.row_stride +
                                         item.head * call.out.head_stride + 8 * chunk);
    uint4 packed = *out;
    uint32_t* words = &packed.x;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 x = unpack2<T>(words[w]);
      words[w] = pack2<T>(y[2 * w] + mass * x.x, y[2 * w + 1] + mass * x.y);
    }
    *out = packed;
  }
}

}  // namespace

void groves_finish(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(params.walk.grove_roots.size() * call.heads));
  params.storage == Storage::bfloat16 ? launch(finish_kernel<__nv_bfloat16>, grid, 256, 0, stream, call)
                                      : launch(finish_kernel<__half>, grid, 256, 0, stream, call);
}

}  // namespace ramify::cuda
