// Untied queries (docs/algorithm.md, section 6): every leaf looks with its own query at the siblings of all its
// ancestors, in one softmax. A warp takes a leaf; for the gradients of what is looked at, a warp or, where many look, a
// block takes a node.
#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kManyLeaves = 1024;  // that look at a node: a block for it instead of a warp

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
__global__ void __launch_bounds__(kThreads) leaves_forward_kernel(const __grid_constant__ Call call) {
  let_next_kernel_come();
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
__global__ void __launch_bounds__(kThreads) leaves_backward_kernel(const __grid_constant__ Call call) {
  let_next_kernel_come();
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

// A team of warps that sums in a fixed order: one warp, or all of a block through its shared memory.
template <int kLane, bool kIsBlock>
__device__ void sum_team(float (&x)[kLane]) {
  if constexpr (kIsBlock) {
    __shared__ float partial[kThreads * kLane];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kLane; ++j) partial[threadIdx.x * kLane + j] = x[j];
    __syncthreads();
    fill(x, 0.0f);
    for (int w = 0; w < warps_of_block(); ++w) {
#pragma unroll
      for (int j = 0; j < kLane; ++j) x[j] += partial[(w * 32 + lane_of_thread()) * kLane + j];
    }
  }
}

// Adds up what the leaves below `from` that look at `to` do to it; returns the sum of the scores' gradients.
template <class T, int kLane>
struct KeyGradient {
  float k[kLane], v[kLane], grad_k[kLane], grad_v[kLane];

  __device__ float add(const NodeRows<T, kLane>& rows, const BlockNode& from, float offset, int first, int step) {
    const Call& call = rows.call;
    float grad_scores = 0;
    for (int64_t leaf = from.first_leaf + first; leaf < from.first_leaf + from.size; leaf += step) {
      float q[kLane], grad_out[kLane];
      read_row<T>(call.q, leaf, rows.head, call.dim, q);
      read_row<T>(call.grad_out, leaf, rows.head, call.value_dim, grad_out);
      const Scored scored = look(rows, leaf, q, grad_out, k, v, offset);
      add_scaled(grad_k, call.scale * scored.gradient, q);
      add_scaled(grad_v, scored.p, grad_out);
      grad_scores += scored.gradient;
    }
    return grad_scores;
  }
};

template <class T, int kLane>
__device__ void add_position(const NodeRows<T, kLane>& rows, int64_t row, const T* position, float factor) {
  const Call& call = rows.call;
  if (!position) return;
  float* to = call.grad_position + (row * call.heads + rows.head) * call.position_dim;
  for (int c = lane_of_thread(); c < call.position_dim; c += 32) to[c] += factor * to_float(position[c]);
}

// Gradients by the means of inner nodes, or by the keys and values of leaves, which also get their share of those
// above.
template <class T, int kLane, bool kIsBlock>
__global__ void __launch_bounds__(kThreads) nodes_backward_kernel(const __grid_constant__ Call call, bool of_leaves) {
  let_next_kernel_come();
  wait_for_kernels_before();
  const int64_t item = kIsBlock ? int64_t{blockIdx.x} : int64_t{blockIdx.x} * warps_of_block() + warp_of_thread();
  const int64_t n = item / call.heads;
  if (n >= call.num_nodes) return;
  const NodeRows<T, kLane> rows{call, static_cast<int>(item % call.heads)};
  const BlockNode node = call.nodes[n];
  const bool is_leaf = node.num_children == 0;
  if (node.parent < 0 || is_leaf != of_leaves) return;
  const BlockNode parent = call.nodes[node.parent];
  if (kIsBlock != (parent.size > kManyLeaves)) return;
  const int first = kIsBlock ? warp_of_thread() : 0, step = kIsBlock ? warps_of_block() : 1;
  KeyGradient<T, kLane> own;
  rows.k(node, own.k), rows.v(node, own.v);
  fill(own.grad_k, 0.0f), fill(own.grad_v, 0.0f);
  const float log_size = logf(static_cast<float>(node.size));
  for (int64_t other = parent.first_child; other < parent.first_child + parent.num_children; ++other) {
    const bool is_itself = other == n;
    if (is_itself && !(is_leaf && call.include_self)) continue;
    const BlockNode sibling = call.nodes[other];
    const float position = rows.position_score(n, other, node);
    float grad_scores[1] = {0};
    if (!call.is_causal || other >= n) grad_scores[0] = own.add(rows, sibling, log_size + position, first, step);
    if (call.position_dim == 0) continue;
    if (is_itself) {
      grad_scores[0] *= 2;
    } else if (!call.is_causal || other <= n) {  // and what its own leaves do to the position of where they look from
      KeyGradient<T, kLane> its;
      rows.k(sibling, its.k), rows.v(sibling, its.v);
      fill(its.grad_k, 0.0f), fill(its.grad_v, 0.0f);
      const float offset = logf(static_cast<float>(sibling.size)) + position;
      grad_scores[0] += its.add(rows, node, offset, first, step);
    }
    sum_team<1, kIsBlock>(grad_scores);
    if (kIsBlock && warp_of_thread() != 0) continue;
    is_itself ? add_position(rows, call.num_nodes + node.first_leaf, rows.position_towards_itself(node.first_leaf),
                             grad_scores[0])
              : add_position(rows, n, rows.position_towards_siblings(other), grad_scores[0]);
  }
  sum_team<kLane, kIsBlock>(own.grad_k), sum_team<kLane, kIsBlock>(own.grad_v);
  if (kIsBlock && warp_of_thread() != 0) return;
  if (!is_leaf) {
    write_floats(call.grad_mean_k, rows.slot_row(node), call.dim, own.grad_k);
    write_floats(call.grad_mean_v, rows.slot_row(node), call.value_dim, own.grad_v);
    return;
  }
  if (parent.parent >= 0) {
    float x[kLane];
    const float part = 1.0f / static_cast<float>(parent.size);
    read_floats(call.grad_mean_k, rows.slot_row(parent), call.dim, x), add_scaled(own.grad_k, part, x);
    read_floats(call.grad_mean_v, rows.slot_row(parent), call.value_dim, x), add_scaled(own.grad_v, part, x);
  }
  if (call.group == 1) {
    write_row<T>(call.grad_k, node.first_leaf, rows.head, call.dim, own.grad_k);
    write_row<T>(call.grad_v, node.first_leaf, rows.head, call.value_dim, own.grad_v);
  } else {
    write_floats(call.leaf_grad_k, rows.leaf_row(node.first_leaf), call.dim, own.grad_k);
    write_floats(call.leaf_grad_v, rows.leaf_row(node.first_leaf), call.value_dim, own.grad_v);
  }
}

// Every inner node gets its share of its parent's gradients.
template <class T, int kLane>
__global__ void __launch_bounds__(kThreads) share_kernel(const __grid_constant__ Call call, int64_t unit_begin) {
  let_next_kernel_come();
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_end - 1; r >= unit.round_begin; --r) {
    const BlockRound round = call.rounds[r];
    for (int64_t i = round.member_begin + warp_of_thread(); i < round.member_end; i += warps_of_block()) {
      const BlockNode node = call.nodes[call.members[i]], parent = call.nodes[node.parent];
      if (node.num_children == 0 || parent.parent < 0) continue;
      const float part = static_cast<float>(node.size) / static_cast<float>(parent.size);
      float x[kLane], own[kLane];
      read_floats(call.grad_mean_k, rows.slot_row(parent), call.dim, x);
      read_floats(call.grad_mean_k, rows.slot_row(node), call.dim, own);
      add_scaled(own, part, x), write_floats(call.grad_mean_k, rows.slot_row(node), call.dim, own);
      read_floats(call.grad_mean_v, rows.slot_row(parent), call.value_dim, x);
      read_floats(call.grad_mean_v, rows.slot_row(node), call.value_dim, own);
      add_scaled(own, part, x), write_floats(call.grad_mean_v, rows.slot_row(node), call.value_dim, own);
    }
    __syncthreads();
  }
}

dim3 warps_grid(int64_t items) {
  return dim3(static_cast<unsigned>((items * 32 + kThreads - 1) / kThreads));
}

template <class T, int kLane>
void nodes_backward(const Call& call, const AttentionParams& params, bool of_leaves, cudaStream_t stream) {
  const int64_t items = call.num_nodes * call.heads;
  launch(nodes_backward_kernel<T, kLane, false>, warps_grid(items), kThreads, 0, stream, call, of_leaves);
  if (params.walk.totals.num_leaves <= kManyLeaves) return;  // nobody is looked at by so many
  launch(nodes_backward_kernel<T, kLane, true>, dim3(static_cast<unsigned>(items)), kThreads, 0, stream, call,
         of_leaves);
}

}  // namespace

void untied_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  crown_fold(call, params, /*means=*/true, /*energy=*/false, stream);
  dispatch(params, [&]<class T, int kLane>() {
    launch(leaves_forward_kernel<T, kLane>, warps_grid(call.num_leaves * call.heads), kThreads, 0, stream, call);
  });
  crown_fold(call, params, /*means=*/false, /*energy=*/true, stream);
}

void untied_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  dispatch(params, [&]<class T, int kLane>() {
    launch(leaves_backward_kernel<T, kLane>, warps_grid(call.num_leaves * call.heads), kThreads, 0, stream, call);
    nodes_backward<T, kLane>(call, params, /*of_leaves=*/false, stream);
    for (auto s = static_cast<int64_t>(params.walk.stage_begin.size()) - 2; s >= 0; --s) {
      const int64_t begin = params.walk.stage_begin[s], end = params.walk.stage_begin[s + 1];
      launch(share_kernel<T, kLane>, dim3(static_cast<unsigned>((end - begin) * call.heads)), kThreads, 0, stream, call,
             begin);
    }
    nodes_backward<T, kLane>(call, params, /*of_leaves=*/true, stream);
  });
}

}  // namespace ramify::cuda
