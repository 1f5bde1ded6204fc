// Untied queries (docs/algorithm.md, section 6): every leaf looks with its own query at the siblings of all its
// ancestors, in one softmax. A warp takes a leaf; what is looked at has its gradients by looked_at.cuh.
#include "kernels/cuda/looked_at.cuh"

namespace ramify::cuda {
namespace {

// Calls visit(node, other, sibling) for all that leaf `leaf` sees: siblings of its ancestors, itself with include_self.
// Returns the root of its tree.
template <class Visit>
__device__ int64_t for_each_seen(const Call& call, int64_t leaf, const Visit& visit) {
  int64_t n = call.leaf_nodes[leaf];
  const int64_t itself = n;
  for (int64_t up = call.nodes[n].parent; up >= 0; n = up, up = call.nodes[up].parent) {
    const BlockNode parent = call.nodes[up];
    const int64_t end = call.is_causal ? n + 1 : parent.first_child + parent.num_children;
    for (int64_t other = parent.first_child; other < end; ++other) {
      if (other == n && !(n == itself && call.include_self)) continue;
      visit(n, other, call.nodes[other]);
    }
  }
  return n;
}

template <class T, int kLane>
__global__ void __launch_bounds__(kLookThreads) leaves_forward_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const int64_t item = int64_t{blockIdx.x} * warps_of_block() + warp_of_thread();
  const int64_t leaf = item / call.heads;
  if (leaf >= call.num_leaves) return;
  const NodeRows<T, kLane> rows{call, static_cast<int>(item % call.heads)};
  const BlockNode node = call.nodes[call.leaf_nodes[leaf]];
  if (node.parent < 0) return;  // a bare leaf
  float q[kLane], values[kLane], largest = minus_infinity(), sum = 0;
  rows.q(node, q);
  fill(values, 0.0f);
  for_each_seen(call, leaf, [&](int64_t n, int64_t other, const BlockNode& sibling) {
    float k[kLane], v[kLane];
    rows.k(sibling, k), rows.v(sibling, v);
    const float score = call.scale * warp_sum(lane_dot(q, k)) + logf(static_cast<float>(sibling.size)) +
                        rows.position_score(n, other, sibling);
    const float next = fmaxf(largest, score);
    const float factor = next == minus_infinity() ? 1.0f : expf(largest - next), p = expf(score - next);
    sum = sum * factor + p;
#pragma unroll
    for (int j = 0; j < kLane; ++j) values[j] = values[j] * factor + p * v[j];
    largest = next;
  });
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int j = 0; j < kLane; ++j) values[j] *= inverse;
  write_row<T>(call.out, leaf, rows.head, call.value_dim, values);
  if (lane_of_thread() == 0) call.leaf_log_sum[rows.leaf_row(leaf)] = {largest, logf(sum)};
}

// A score of leaf `leaf`, and its gradient.
struct Scored {
  float p, gradient;
};
template <class T, int kLane>
__device__ Scored look(const NodeRows<T, kLane>& rows, int64_t leaf, const float (&q)[kLane],
                       const float (&grad_out)[kLane], const float (&k)[kLane], const float (&v)[kLane], float offset) {
  const Call& call = rows.call;
  const float score = call.scale * warp_sum(lane_dot(q, k)) + offset;
  const float p = expf(call.leaf_log_sum[rows.leaf_row(leaf)].log_weight(score));
  return {p, p * (call.leaf_pull[rows.leaf_row(leaf)] + warp_sum(lane_dot(grad_out, v)))};
}

// Gradients by q, and what each leaf's weights pull at.
template <class T, int kLane>
__global__ void __launch_bounds__(kLookThreads) leaves_backward_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const int64_t item = int64_t{blockIdx.x} * warps_of_block() + warp_of_thread();
  const int64_t leaf = item / call.heads;
  if (leaf >= call.num_leaves) return;
  const NodeRows<T, kLane> rows{call, static_cast<int>(item % call.heads)};
  const BlockNode node = call.nodes[call.leaf_nodes[leaf]];
  if (node.parent < 0) return;
  float q[kLane], grad_out[kLane], mean_k[kLane], grad_q[kLane], gain = 0;
  rows.q(node, q), rows.grad_y(node, grad_out);
  fill(mean_k, 0.0f), fill(grad_q, 0.0f);
  const LogSum log_sum = call.leaf_log_sum[rows.leaf_row(leaf)];
  const int64_t root = for_each_seen(call, leaf, [&](int64_t n, int64_t other, const BlockNode& sibling) {
    float k[kLane], v[kLane];
    rows.k(sibling, k), rows.v(sibling, v);
    const float score = call.scale * warp_sum(lane_dot(q, k)) + logf(static_cast<float>(sibling.size)) +
                        rows.position_score(n, other, sibling);
    const float p = expf(log_sum.log_weight(score)), gained = p * warp_sum(lane_dot(grad_out, v));
    gain += gained;
    add_scaled(mean_k, p, k), add_scaled(grad_q, gained, k);
  });
  const float pull =
      call.grad_root_energy[root * call.heads + rows.head] / static_cast<float>(call.nodes[root].size) - gain;
  add_scaled(grad_q, pull, mean_k);
#pragma unroll
  for (int j = 0; j < kLane; ++j) grad_q[j] *= call.scale;
  write_row<T>(call.grad_q, leaf, rows.head, call.dim, grad_q);
  if (lane_of_thread() == 0) call.leaf_pull[rows.leaf_row(leaf)] = pull;
}

// All leaves below a child look alike, each with its own query.
template <class T, int kLane>
struct UntiedLook {
  __device__ static float add(KeyGradient<kLane>& to, const NodeRows<T, kLane>& rows, const BlockNode&, int64_t from,
                              float offset, Team team) {
    const Call& call = rows.call;
    const BlockNode child = call.nodes[from];
    float grad_scores = 0;
    for (int64_t leaf = child.first_leaf + team.first; leaf < child.first_leaf + child.size; leaf += team.step) {
      float q[kLane], grad_out[kLane];
      read_row<T>(call.q, leaf, rows.head, call.dim, q);
      read_row<T>(call.grad_out, leaf, rows.head, call.value_dim, grad_out);
      const Scored scored = look(rows, leaf, q, grad_out, to.k, to.v, offset);
      add_scaled(to.grad_k, call.scale * scored.gradient, q);
      add_scaled(to.grad_v, scored.p, grad_out);
      grad_scores += scored.gradient;
    }
    return grad_scores;
  }
};

}  // namespace

void untied_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  crown_fold(call, params, /*means=*/true, /*energy=*/false, stream);
  dispatch(params, [&]<class T, int kLane>() {
    launch(leaves_forward_kernel<T, kLane>, warps_grid(call.num_leaves * call.heads), kLookThreads, 0, stream, call);
  });
  crown_fold(call, params, /*means=*/false, /*energy=*/true, stream);
}

void untied_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  dispatch(params, [&]<class T, int kLane>() {
    launch(leaves_backward_kernel<T, kLane>, warps_grid(call.num_leaves * call.heads), kLookThreads, 0, stream, call);
    looked_at_backward<T, kLane, UntiedLook<T, kLane>>(call, params, stream);
  });
}

}  // namespace ramify::cuda
