// Gradients of what leaves look at, for queries that differ from leaf to leaf: a warp or, where many look, a block
// takes a node, and adds up what each leaf does to it in a fixed order. `Look` says how leaves look:
//     Look::add(gradient, rows, parent, from, offset, team)
// adds what the leaves below the child `from` of `parent` do to the node whose k and v `gradient` has, as far as they
// are this warp's; returns the sum of the scores' gradients.
#pragma once

#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {

constexpr int kLookThreads = 256;
constexpr int64_t kManyLeaves = 1024;  // that look at a node: a block for it instead of a warp

inline dim3 warps_grid(int64_t items) {
  return dim3(static_cast<unsigned>((items * 32 + kLookThreads - 1) / kLookThreads));
}

// A warp's place among those that share a node.
struct Team {
  int first, step;
};

template <int kLane>
struct KeyGradient {
  float k[kLane], v[kLane], grad_k[kLane], grad_v[kLane];
};

// Over a team, in a fixed order.
template <int kLane, bool kIsBlock>
__device__ void sum_team(float (&x)[kLane]) {
  if constexpr (kIsBlock) {
    __shared__ float partial[kLookThreads * kLane];
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

template <class T, int kLane>
__device__ void add_position(const NodeRows<T, kLane>& rows, int64_t row, const T* position, float factor) {
  const Call& call = rows.call;
  if (!position) return;
  float* to = call.grad_position + (row * call.heads + rows.head) * call.position_dim;
  for (int c = lane_of_thread(); c < call.position_dim; c += 32) to[c] += factor * to_float(position[c]);
}

// Gradients by the means of inner nodes, or by the keys and values of leaves, which also get their share of those
// above.
template <class T, int kLane, bool kIsBlock, class Look>
__global__ void __launch_bounds__(kLookThreads) looked_at_kernel(const __grid_constant__ Call call, bool of_leaves) {
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
  const Team team = kIsBlock ? Team{warp_of_thread(), warps_of_block()} : Team{0, 1};
  KeyGradient<kLane> own;
  rows.k(node, own.k), rows.v(node, own.v);
  fill(own.grad_k, 0.0f), fill(own.grad_v, 0.0f);
  const float log_size = logf(static_cast<float>(node.size));
  for (int64_t other = parent.first_child; other < parent.first_child + parent.num_children; ++other) {
    const bool is_itself = other == n;
    if (is_itself && !(is_leaf && call.include_self)) continue;
    const float position = rows.position_score(n, other, node);
    float grad_scores[1] = {0};
    if (!call.is_causal || other >= n) grad_scores[0] = Look::add(own, rows, parent, other, log_size + position, team);
    if (call.position_dim == 0) continue;
    if (is_itself) {
      grad_scores[0] *= 2;
    } else if (!call.is_causal || other <= n) {  // and what its own leaves do to the position of where they look from
      const BlockNode sibling = call.nodes[other];
      KeyGradient<kLane> its;
      rows.k(sibling, its.k), rows.v(sibling, its.v);
      fill(its.grad_k, 0.0f), fill(its.grad_v, 0.0f);
      const float offset = logf(static_cast<float>(sibling.size)) + position;
      grad_scores[0] += Look::add(its, rows, parent, n, offset, team);
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
__global__ void __launch_bounds__(kLookThreads) share_kernel(const __grid_constant__ Call call, int64_t unit_begin) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_end - 1; r >= unit.round_begin; --r) {
    for_each_member(call, call.rounds[r], [&](int64_t n) {
      const BlockNode node = call.nodes[n], parent = call.nodes[node.parent];
      if (node.num_children == 0 || parent.parent < 0) return;
      const float part = static_cast<float>(node.size) / static_cast<float>(parent.size);
      const auto take = [&](float* gradients, int dim) {
        float x[kLane], own[kLane];
        read_floats(gradients, rows.slot_row(parent), dim, x), read_floats(gradients, rows.slot_row(node), dim, own);
        add_scaled(own, part, x), write_floats(gradients, rows.slot_row(node), dim, own);
      };
      take(call.grad_mean_k, call.dim), take(call.grad_mean_v, call.value_dim);
    });
  }
}

// Of all keys and values: first those of inner nodes, which then share theirs with what is below.
template <class T, int kLane, class Look>
void looked_at_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const int64_t items = call.num_nodes * call.heads;
  const auto run = [&](bool of_leaves) {
    launch(looked_at_kernel<T, kLane, false, Look>, warps_grid(items), kLookThreads, 0, stream, call, of_leaves);
    if (params.walk.totals.num_leaves <= kManyLeaves) return;  // nobody is looked at by so many
    launch(looked_at_kernel<T, kLane, true, Look>, dim3(static_cast<unsigned>(items)), kLookThreads, 0, stream, call,
           of_leaves);
  };
  run(/*of_leaves=*/false);
  for (auto s = static_cast<int64_t>(params.walk.stage_begin.size()) - 2; s >= 0; --s) {
    const int64_t begin = params.walk.stage_begin[s].unit, end = params.walk.stage_begin[s + 1].unit;
    launch(share_kernel<T, kLane>, dim3(static_cast<unsigned>((end - begin) * call.heads)), kLookThreads, 0, stream,
           call, begin);
  }
  run(/*of_leaves=*/true);
}

}  // namespace ramify::cuda
