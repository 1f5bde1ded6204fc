// Sums of gradients over those who share an input: heads that share keys, nodes that share a row of positions.
#include <algorithm>

#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {
namespace {

template <class T>
__global__ void sum_groups_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const int64_t key_heads = call.heads / call.group, row_size = call.dim + call.value_dim;
  const int64_t count = call.num_leaves * key_heads * row_size;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t c = i % row_size, head = i / row_size % key_heads, leaf = i / row_size / key_heads;
    const bool is_key = c < call.dim;
    const int64_t dim = is_key ? call.dim : call.value_dim, channel = is_key ? c : c - call.dim;
    const float* from =
        (is_key ? call.leaf_grad_k : call.leaf_grad_v) + (leaf * call.heads + head * call.group) * dim + channel;
    float sum = 0;
    for (int g = 0; g < call.group; ++g) sum += from[g * dim];
    const Rows& rows = is_key ? call.grad_k : call.grad_v;
    static_cast<T*>(rows.data)[leaf * rows.row_stride + head * rows.head_stride + channel] = from_float<T>(sum);
  }
}

// A block a row of positions and head: threads share the channels and, in a fixed order, those who have the row.
__global__ void sum_positions_kernel(const __grid_constant__ Call call, const int64_t* order, const int64_t* begin,
                                     float* grad_positions) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  __shared__ float partial[256];
  const int lanes = 32, teams = static_cast<int>(blockDim.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, team = static_cast<int>(threadIdx.x) / lanes;
  for (int first = 0; first < call.position_dim; first += lanes) {
    const int c = first + lane;
    float sum = 0;
    if (c < call.position_dim) {
      for (int64_t i = begin[place.item] + team; i < begin[place.item + 1]; i += teams) {
        sum += call.grad_position[(order[i] * call.heads + place.head) * call.position_dim + c];
      }
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (team == 0 && c < call.position_dim) {
      for (int t = 1; t < teams; ++t) sum += partial[t * lanes + lane];
      grad_positions[(place.item * call.heads + place.head) * call.position_dim + c] = sum;
    }
    __syncthreads();
  }
}

}  // namespace

void sum_groups(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  if (call.group == 1) return;
  const int64_t count = call.num_leaves * (call.heads / call.group) * (call.dim + call.value_dim);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((count + 255) / 256, 4096));
  dispatch(params, [&]<class T, int kLane>() { launch(sum_groups_kernel<T>, blocks, 256, 0, stream, call); });
}

void sum_positions(const Call& call, const AttentionParams&, const BackwardInput& input, float* grad_positions,
                   cudaStream_t stream) {
  if (call.position_dim == 0) return;
  launch(sum_positions_kernel, dim3(static_cast<unsigned>(input.num_positions * call.heads)), 256, 0, stream, call,
         input.position_order, input.position_begin, grad_positions);
}

}  // namespace ramify::cuda
