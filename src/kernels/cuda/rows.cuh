// Rows as a warp holds them: channel lane + 32 · j in entry j of each lane.
#pragma once

#include "kernels/cuda/call.h"

namespace ramify::cuda {

__device__ __forceinline__ int lane_of_thread() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ __forceinline__ int warp_of_thread() {
  return static_cast<int>(threadIdx.x / 32);
}
__device__ __forceinline__ int warps_of_block() {
  return static_cast<int>(blockDim.x / 32);
}

__device__ __forceinline__ float minus_infinity() {
  return __int_as_float(static_cast<int>(0xff800000u));
}

__device__ __forceinline__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// logaddexp, with -inf for nothing on both sides.
__device__ __forceinline__ float log_add(float a, float b) {
  const float largest = fmaxf(a, b);
  if (largest == minus_infinity() && a == b) return largest;
  return largest + logf(expf(a - largest) + expf(b - largest));
}

// exp(x - total): the part of one side in log_add.
__device__ __forceinline__ float share_of(float x, float total) {
  return total == minus_infinity() ? 0.0f : expf(x - total);
}

template <class T, int kLane>
__device__ __forceinline__ void read_row(const Rows& rows, int64_t row, int head, int dim, float (&x)[kLane]) {
  const T* from = static_cast<const T*>(rows.data) + row * rows.row_stride + head * rows.head_stride;
#pragma unroll
  for (int j = 0; j < kLane; ++j) {
    const int c = lane_of_thread() + 32 * j;
    x[j] = c < dim ? to_float(from[c]) : 0.0f;
  }
}

template <class T, int kLane>
__device__ __forceinline__ void write_row(const Rows& rows, int64_t row, int head, int dim, const float (&x)[kLane]) {
  T* to = static_cast<T*>(rows.data) + row * rows.row_stride + head * rows.head_stride;
#pragma unroll
  for (int j = 0; j < kLane; ++j) {
    const int c = lane_of_thread() + 32 * j;
    if (c < dim) to[c] = from_float<T>(x[j]);
  }
}

// Rows of floats, [rows, heads, dim].
template <int kLane>
__device__ __forceinline__ void read_floats(const float* rows, int64_t row, int dim, float (&x)[kLane]) {
#pragma unroll
  for (int j = 0; j < kLane; ++j) {
    const int c = lane_of_thread() + 32 * j;
    x[j] = c < dim ? rows[row * dim + c] : 0.0f;
  }
}
template <int kLane>
__device__ __forceinline__ void write_floats(float* rows, int64_t row, int dim, const float (&x)[kLane]) {
#pragma unroll
  for (int j = 0; j < kLane; ++j) {
    const int c = lane_of_thread() + 32 * j;
    if (c < dim) rows[row * dim + c] = x[j];
  }
}

template <int kLane>
__device__ __forceinline__ void fill(float (&x)[kLane], float value) {
#pragma unroll
  for (int j = 0; j < kLane; ++j) x[j] = value;
}
template <int kLane>
__device__ __forceinline__ float lane_dot(const float (&a)[kLane], const float (&b)[kLane]) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kLane; ++j) sum += a[j] * b[j];
  return sum;
}
template <int kLane>
__device__ __forceinline__ void add_scaled(float (&sum)[kLane], float factor, const float (&x)[kLane]) {
#pragma unroll
  for (int j = 0; j < kLane; ++j) sum[j] += factor * x[j];
}

// A block's place in a launch over items × heads, heads first: blocks that run together read neighbouring memory.
struct HeadItem {
  int head;
  int64_t item;
};
__device__ __forceinline__ HeadItem head_item(const Call& call) {
  return {static_cast<int>(blockIdx.x % call.heads), static_cast<int64_t>(blockIdx.x / call.heads)};
}

// Calls visit(n) for the children of a round's families, a warp each, and waits for all.
template <class Visit>
__device__ __forceinline__ void for_each_member(const Call& call, const BlockRound& round, const Visit& visit) {
  for (int64_t i = round.member_begin + warp_of_thread(); i < round.member_end; i += warps_of_block()) {
    visit(call.members[i]);
  }
  __syncthreads();
}

// What a node is to its siblings, a leaf from the inputs, an inner node from the saved means.
template <class T, int kLane>
struct NodeRows {
  const Call& call;
  int head;

  __device__ int64_t slot_row(const BlockNode& node) const { return node.slot * call.heads + head; }
  __device__ int64_t leaf_row(int64_t leaf) const { return leaf * call.heads + head; }
  __device__ static bool is_leaf(const BlockNode& node) { return node.num_children == 0; }

  __device__ void q(const BlockNode& node, float (&x)[kLane]) const {
    is_leaf(node) ? read_row<T>(call.q, node.first_leaf, head, call.dim, x)
                  : read_floats(call.mean_q, slot_row(node), call.dim, x);
  }
  __device__ void k(const BlockNode& node, float (&x)[kLane]) const {
    is_leaf(node) ? read_row<T>(call.k, node.first_leaf, head / call.group, call.dim, x)
                  : read_floats(call.mean_k, slot_row(node), call.dim, x);
  }
  __device__ void v(const BlockNode& node, float (&x)[kLane]) const {
    is_leaf(node) ? read_row<T>(call.v, node.first_leaf, head / call.group, call.value_dim, x)
                  : read_floats(call.mean_v, slot_row(node), call.value_dim, x);
  }
  // y(C) after the way down, and its gradient
  __device__ void y(const BlockNode& node, float (&x)[kLane]) const {
    is_leaf(node) ? read_row<T>(call.out, node.first_leaf, head, call.value_dim, x)
                  : read_floats(call.y, slot_row(node), call.value_dim, x);
  }
  __device__ void grad_y(const BlockNode& node, float (&x)[kLane]) const {
    is_leaf(node) ? read_row<T>(call.grad_out, node.first_leaf, head, call.value_dim, x)
                  : read_floats(call.grad_y, slot_row(node), call.value_dim, x);
  }
  // of a parent: nothing is above the root of a tree
  __device__ void y_of_parent(const BlockNode& parent, float (&x)[kLane]) const {
    parent.parent < 0 ? fill(x, 0.0f) : read_floats(call.y, slot_row(parent), call.value_dim, x);
  }
  __device__ float mass_of_parent(const BlockNode& parent) const {
    return parent.parent < 0 ? 1.0f : call.mass[slot_row(parent)];
  }

  // t(C)
  __device__ float total(const BlockNode& node) const {
    if (is_leaf(node)) return call.leaf_log_sum[leaf_row(node.first_leaf)].total();
    const float energy = call.energy[slot_row(node)];
    return call.is_tied ? log_add(energy, call.log_sum[slot_row(node)].total()) : energy;
  }

  // A row of positions, as lanes share it; -1: none.
  __device__ const T* position(int64_t index) const {
    return index < 0 ? nullptr
                     : static_cast<const T*>(call.positions.data) + index * call.positions.row_stride +
                           head * call.positions.head_stride;
  }
  __device__ const T* position_towards_siblings(int64_t node) const { return position(call.node_position[node]); }
  __device__ const T* position_towards_itself(int64_t leaf) const { return position(call.self_position[leaf]); }
  __device__ float position_score(const T* a, const T* b) const {
    if (!a || !b) return 0;
    float sum = 0;
    for (int c = lane_of_thread(); c < call.position_dim; c += 32) sum += to_float(a[c]) * to_float(b[c]);
    return warp_sum(sum);
  }
  // of a child, for a sibling or, with include_self, for itself
  __device__ float position_score(int64_t n, int64_t other, const BlockNode& node) const {
    if (call.position_dim == 0) return 0;
    if (n == other) {
      const T* itself = position_towards_itself(node.first_leaf);
      return position_score(itself, itself);
    }
    return position_score(position_towards_siblings(n), position_towards_siblings(other));
  }
};

}  // namespace ramify::cuda
