// Leaves that are whole trees: each sees itself or nothing.
#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {
namespace {

template <class T, int kLane>
__global__ void bare_forward_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const NodeRows<T, kLane> rows{call, place.head};
  const int64_t n = call.bare_leaves[place.item];
  const BlockNode node = call.nodes[n];
  float q[kLane], k[kLane], v[kLane];
  rows.q(node, q), rows.k(node, k), rows.v(node, v);
  float energy = minus_infinity();
  if (call.include_self) {
    energy = call.scale * warp_sum(lane_dot(q, k)) + rows.position_score(n, n, node);
  } else {
    fill(v, 0.0f);
  }
  write_row<T>(call.out, node.first_leaf, place.head, call.value_dim, v);
  if (lane_of_thread() == 0) call.root_energy[n * call.heads + place.head] = energy;
}

template <class T, int kLane>
__global__ void bare_backward_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const NodeRows<T, kLane> rows{call, place.head};
  const int64_t n = call.bare_leaves[place.item];
  const BlockNode node = call.nodes[n];
  const float grad_energy = call.include_self ? call.grad_root_energy[n * call.heads + place.head] : 0.0f;
  float x[kLane], grad_q[kLane], grad_k[kLane], grad_v[kLane];
  fill(grad_q, 0.0f), fill(grad_k, 0.0f), fill(grad_v, 0.0f);
  if (call.include_self) {
    rows.k(node, x), add_scaled(grad_q, call.scale * grad_energy, x);
    rows.q(node, x), add_scaled(grad_k, call.scale * grad_energy, x);
    rows.grad_y(node, grad_v);
  }
  write_row<T>(call.grad_q, node.first_leaf, place.head, call.dim, grad_q);
  if (call.group == 1) {
    write_row<T>(call.grad_k, node.first_leaf, place.head, call.dim, grad_k);
    write_row<T>(call.grad_v, node.first_leaf, place.head, call.value_dim, grad_v);
  } else {
    write_floats(call.leaf_grad_k, rows.leaf_row(node.first_leaf), call.dim, grad_k);
    write_floats(call.leaf_grad_v, rows.leaf_row(node.first_leaf), call.value_dim, grad_v);
  }
  if (call.position_dim == 0 || !call.include_self) return;
  const T* itself = rows.position_towards_itself(node.first_leaf);
  float* to = call.grad_position + ((call.num_nodes + node.first_leaf) * call.heads + place.head) * call.position_dim;
  for (int c = lane_of_thread(); c < call.position_dim; c += 32) {
    to[c] = itself ? 2 * grad_energy * to_float(itself[c]) : 0.0f;
  }
}

}  // namespace

void bare_leaves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(params.walk.bare_leaves.size() * call.heads);
  dispatch(params, [&]<class T, int kLane>() { launch(bare_forward_kernel<T, kLane>, blocks, 32, 0, stream, call); });
}

void bare_leaves_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(params.walk.bare_leaves.size() * call.heads);
  dispatch(params, [&]<class T, int kLane>() { launch(bare_backward_kernel<T, kLane>, blocks, 32, 0, stream, call); });
}

}  // namespace ramify::cuda
