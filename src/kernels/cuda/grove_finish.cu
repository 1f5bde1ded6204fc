// Tied queries in groves, forward: what is above leaves comes to them.
#include "kernels/cuda/grove_above.cuh"

namespace ramify::cuda {
namespace {

constexpr int kRowsOfBlock = 256;

// out = y + pi · a(leaf): eight lanes have eight rows, a chunk of eight channels each. The last rows come first: the
// second-level cache may still have them.
template <class T>
__global__ void __launch_bounds__(256, 3) finish_kernel(const __grid_constant__ Call call) {
  const HeadItem item = head_item(call);
  const int64_t block = gridDim.x / call.heads - 1 - item.item;
  const int lane = lane_of_thread(), chunk = lane % 8;
  const int64_t first = block * kRowsOfBlock + warp_of_thread() * 32;
  const LeafAbove own = first + lane < call.num_leaves ? call.leaf_above[first + lane] : LeafAbove();
  const auto above = [&](int i) {
    return LeafAbove{from_lane(own.place, lane - chunk + i), from_lane(own.slot, lane - chunk + i)};
  };
  const auto is_any = [](LeafAbove its) { return its.place >= 0 || its.slot >= 0; };
  wait_for_kernels_before();
  const int64_t row = first + lane - chunk;
  const T* value = static_cast<const T*>(call.value.data) + row * call.value.row_stride +
                   item.head * call.value.head_stride + 8 * chunk;
  T* out = static_cast<T*>(call.out.data) + row * call.out.row_stride + item.head * call.out.head_stride + 8 * chunk;
  uint4 x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i, value += call.value.row_stride) {
    x[i] = make_uint4(0, 0, 0, 0);
    if (is_any(above(i))) x[i] = *reinterpret_cast<const uint4*>(value);
  }
  LeafAbove last = above(0);
  Above from(call, item.head, chunk, last);
#pragma unroll
  for (int i = 0; i < 8; ++i, out += call.out.row_stride) {
    const LeafAbove its = above(i);
    if (!is_any(its)) continue;
    if (its.place != last.place || its.slot != last.slot) {
      last = its;
      from = Above(call, item.head, chunk, last);
    }
    store16(out, from.chunk<T>(x[i]));
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
