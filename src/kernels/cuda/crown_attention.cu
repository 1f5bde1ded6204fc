// Tied queries over the crown, which is any forest at all: a warp takes a child of a family, or a family, at a time
// (docs/algorithm.md, sections 2 and 4). A leaf's own score, with include_self, is one more entry beside its siblings'.
//
// On the way up `out` of a leaf and `y` of an inner node hold a(C). Backward works with what siblings give a child, and
// what all below it are given:
//     gain(C)       = grad_y(C) · (y(C) - y(A)) = grad_a(C) · a(C)
//     inner_gain(A) = pi(A) · grad_pi(A) = sum over children of inner_gain(C) + gain(C)
// Those of leaves come from their weights again, since `out` is rounded.
#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {
namespace {

constexpr int kThreads = 512;
// Rows that are under way together.
template <int kLane>
constexpr int kBatch = kLane <= 2 ? 8 : 4;

// Softmax attention that meets its entries a batch at a time.
template <int kLane>
struct RunningSoftmax {
  float largest = minus_infinity(), sum = 0;
  float values[kLane];

  __device__ RunningSoftmax() { fill(values, 0.0f); }

  template <int kCount>
  __device__ void add(const float (&scores)[kCount], const float (&v)[kCount][kLane]) {
    float next = largest;
#pragma unroll
    for (int i = 0; i < kCount; ++i) next = fmaxf(next, scores[i]);
    const float factor = next == minus_infinity() ? 1.0f : expf(largest - next);
    sum *= factor;
#pragma unroll
    for (int j = 0; j < kLane; ++j) values[j] *= factor;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float p = scores[i] == minus_infinity() ? 0.0f : expf(scores[i] - next);
      sum += p;
      add_scaled(values, p, v[i]);
    }
    largest = next;
  }
  // Leaves the weighted mean in `values`; returns the log-sum-exp.
  __device__ LogSum finish() {
    if (largest == minus_infinity() && sum == 0) return {largest, 0};
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < kLane; ++j) values[j] *= inverse;
    return {largest, logf(sum)};
  }
};

// Which children a child looks at: [begin, end) without itself, unless it is a leaf with include_self.
struct Sight {
  int64_t begin, end;
  bool sees_itself;
};
__device__ Sight sight_of(const Call& call, int64_t n, const BlockNode& node, const BlockNode& parent) {
  const int64_t begin = parent.first_child;
  return {begin, call.is_causal ? n + 1 : begin + parent.num_children, call.include_self && node.num_children == 0};
}

// Whether a family is done by wide_family.cu.
__device__ bool is_wide(const BlockNode& parent) {
  return parent.num_children > kWidestNarrowFamily;
}

// The children of a family of inner nodes, up to 32 without positions: each lane takes one, so that a warp's scores are
// sums along lanes' own rows.
struct InnerFamily {
  int64_t begin;
  int count;
  bool is_one = false;
  int64_t row = 0;  // of the lane's child in arrays of slots; lanes behind the last have the last
  float log_size = 0;

  __device__ InnerFamily(const Call& call, const BlockNode& parent, int head) : begin(parent.first_child) {
    count = static_cast<int>(min(parent.num_children, int64_t{33}));
    if (count > 32 || call.position_dim > 0 || call.dim % 4 != 0 || call.value_dim % 4 != 0) return;
    const BlockNode own = call.nodes[begin + min(lane_of_thread(), count - 1)];
    is_one = __all_sync(0xffffffffu, own.num_children != 0);
    row = own.slot * call.heads + head, log_size = logf(static_cast<float>(own.size));
  }
  // Of the lane's row of `theirs` and one row of `own`.
  __device__ static float dot(const float* own, const float* theirs, int dim) {
    float sum = 0;
#pragma unroll 8
    for (int c = 0; c < dim; c += 4) {
      const float4 a = *reinterpret_cast<const float4*>(own + c), b = *reinterpret_cast<const float4*>(theirs + c);
      sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    return sum;
  }
  // sum += weight · row of all children, channels by lanes.
  template <int kLane>
  __device__ void add_rows(float (&sum)[kLane], float weight, const float* array, int dim) const {
#pragma unroll 8
    for (int i = 0; i < count; ++i) {
      float x[kLane];
      read_floats(array, __shfl_sync(0xffffffffu, row, i), dim, x);
      add_scaled(sum, __shfl_sync(0xffffffffu, weight, i), x);
    }
  }
};
__device__ __forceinline__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

template <class T, int kLane>
__device__ void attend_inner(const NodeRows<T, kLane>& rows, int64_t n, const BlockNode& node,
                             const InnerFamily& family) {
  const Call& call = rows.call;
  const int lane = lane_of_thread(), own = static_cast<int>(n - family.begin);
  const int64_t row = rows.slot_row(node);
  const float dot = InnerFamily::dot(call.mean_q + row * call.dim, call.mean_k + family.row * call.dim, call.dim);
  const bool is_seen = lane != own && lane < (call.is_causal ? own : family.count);
  const float score = is_seen ? call.scale * dot + family.log_size : minus_infinity();
  const float largest = warp_max(score), base = largest == minus_infinity() ? 0.0f : largest;
  const float p = expf(score - base), sum = warp_sum(p);
  float values[kLane];
  fill(values, 0.0f);
  family.add_rows(values, sum == 0 ? 0.0f : p / sum, call.mean_v, call.value_dim);
  write_floats(call.y, row, call.value_dim, values);
  if (lane == 0) call.log_sum[row] = {largest, sum == 0 ? 0.0f : logf(sum)};
}

template <class T, int kLane>
__device__ void attend(const NodeRows<T, kLane>& rows, int64_t n) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[n], parent = call.nodes[node.parent];
  if (is_wide(parent)) return;
  const InnerFamily family(call, parent, rows.head);
  if (family.is_one) return attend_inner(rows, n, node, family);
  const Sight sight = sight_of(call, n, node, parent);
  float q[kLane];
  rows.q(node, q);
  RunningSoftmax<kLane> softmax;
  constexpr int kCount = kBatch<kLane>;
  for (int64_t first = sight.begin; first < sight.end; first += kCount) {
    float scores[kCount], v[kCount][kLane], k[kCount][kLane];
    BlockNode sibling[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) sibling[i] = call.nodes[min(first + i, sight.end - 1)];
#pragma unroll
    for (int i = 0; i < kCount; ++i) rows.k(sibling[i], k[i]), rows.v(sibling[i], v[i]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t other = first + i;
      scores[i] = call.scale * warp_sum(lane_dot(q, k[i])) + logf(static_cast<float>(sibling[i].size));
      const bool is_seen = other < sight.end && (other != n || sight.sees_itself);
      if (is_seen) scores[i] += rows.position_score(n, other, node);
      if (is_seen) continue;
      scores[i] = minus_infinity();
      fill(v[i], 0.0f);
    }
    softmax.add(scores, v);
  }
  const LogSum log_sum = softmax.finish();
  if (node.num_children == 0) {
    write_row<T>(call.out, node.first_leaf, rows.head, call.value_dim, softmax.values);
    if (lane_of_thread() == 0) call.leaf_log_sum[rows.leaf_row(node.first_leaf)] = log_sum;
  } else {
    write_floats(call.y, rows.slot_row(node), call.value_dim, softmax.values);
    if (lane_of_thread() == 0) call.log_sum[rows.slot_row(node)] = log_sum;
  }
}

// Means of a family and its energy, where asked for: each is a warp's.
enum FoldPart { kMeanQ, kMeanK, kMeanV, kEnergyMean, kFoldParts };
struct Fold {
  bool means, energy;
};
template <class T, int kLane>
__device__ void fold(const NodeRows<T, kLane>& rows, int64_t family, int part, Fold what) {
  const Call& call = rows.call;
  if (part == kEnergyMean ? !what.energy : !what.means || (part == kMeanQ && !call.is_tied)) return;
  const BlockNode node = call.nodes[family];
  if (part != kEnergyMean && node.parent < 0) return;  // nobody looks at a root
  const int64_t row = rows.slot_row(node);
  const auto part_of = [&](const BlockNode& child) {
    return static_cast<float>(child.size) / static_cast<float>(node.size);
  };
  if (part == kEnergyMean) {
    float energy = 0;
    for (int64_t i = lane_of_thread(); i < node.num_children; i += 32) {
      const BlockNode child = call.nodes[node.first_child + i];
      energy += part_of(child) * rows.total(child);
    }
    energy = warp_sum(energy);
    if (lane_of_thread() != 0) return;
    call.energy[row] = energy;
    if (node.parent < 0) call.root_energy[family * call.heads + rows.head] = energy;
    return;
  }
  constexpr int kCount = kBatch<kLane>;
  float mean[kLane];
  fill(mean, 0.0f);
  for (int64_t first = 0; first < node.num_children; first += kCount) {
    BlockNode child[kCount];
    float x[kCount][kLane];
#pragma unroll
    for (int i = 0; i < kCount; ++i) child[i] = call.nodes[node.first_child + min(first + i, node.num_children - 1)];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      part == kMeanQ ? rows.q(child[i], x[i]) : part == kMeanK ? rows.k(child[i], x[i]) : rows.v(child[i], x[i]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < node.num_children) add_scaled(mean, part_of(child[i]), x[i]);
    }
  }
  part == kMeanQ   ? write_floats(call.mean_q, row, call.dim, mean)
  : part == kMeanK ? write_floats(call.mean_k, row, call.dim, mean)
                   : write_floats(call.mean_v, row, call.value_dim, mean);
}

template <class T, int kLane>
__global__ void __launch_bounds__(kThreads, 1)
    up_kernel(const __grid_constant__ Call call, int64_t unit_begin, Fold what) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_begin; r < unit.round_end; ++r) {
    const BlockRound round = call.rounds[r];
    if (call.is_tied) for_each_member(call, round, [&](int64_t n) { attend(rows, n); });
    const int64_t parts = (round.family_end - round.family_begin) * kFoldParts;
    for (int64_t i = warp_of_thread(); i < parts; i += warps_of_block()) {
      fold(rows, call.families[round.family_begin + i / kFoldParts], static_cast<int>(i % kFoldParts), what);
    }
    __syncthreads();
  }
}

template <class T, int kLane>
__device__ void descend(const NodeRows<T, kLane>& rows, int64_t n) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[n], parent = call.nodes[node.parent];
  if (node.num_children == 0 && parent.parent < 0) return;  // nothing comes from above
  float above[kLane], own[kLane];
  rows.y_of_parent(parent, above);
  rows.y(node, own);
  float mass = rows.mass_of_parent(parent);
  if (node.num_children == 0) {
    add_scaled(above, mass, own);
    write_row<T>(call.out, node.first_leaf, rows.head, call.value_dim, above);
    return;
  }
  const int64_t row = rows.slot_row(node);
  const float total = rows.total(node);
  add_scaled(above, mass * share_of(call.log_sum[row].total(), total), own);
  write_floats(call.y, row, call.value_dim, above);
  if (lane_of_thread() == 0) call.mass[row] = mass * share_of(call.energy[row], total);
}

template <class T, int kLane>
__global__ void __launch_bounds__(kThreads, 1) down_kernel(const __grid_constant__ Call call, int64_t unit_begin) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_end - 1; r >= unit.round_begin; --r) {
    const BlockRound round = call.rounds[r];
    for_each_member(call, round, [&](int64_t n) { descend(rows, n); });
  }
}

// gain(C)
template <class T, int kLane>
__device__ void take_gain(const NodeRows<T, kLane>& rows, int64_t n) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[n], parent = call.nodes[node.parent];
  if (node.num_children == 0 && is_wide(parent)) return;
  float grad[kLane];
  rows.grad_y(node, grad);
  if (node.num_children != 0) {
    float y[kLane], above[kLane];
    rows.y(node, y), rows.y_of_parent(parent, above);
    add_scaled(y, -1.0f, above);
    const float gain = warp_sum(lane_dot(grad, y));
    if (lane_of_thread() == 0) call.gain[rows.slot_row(node)] = gain;
    return;
  }
  const Sight sight = sight_of(call, n, node, parent);
  const LogSum log_sum = call.leaf_log_sum[rows.leaf_row(node.first_leaf)];
  float q[kLane], gain = 0;
  rows.q(node, q);
  for (int64_t other = sight.begin; other < sight.end; ++other) {
    if (other == n && !sight.sees_itself) continue;
    const BlockNode sibling = call.nodes[other];
    float k[kLane], v[kLane];
    rows.k(sibling, k), rows.v(sibling, v);
    const float score = call.scale * warp_sum(lane_dot(q, k)) + logf(static_cast<float>(sibling.size)) +
                        rows.position_score(n, other, node);
    gain += expf(log_sum.log_weight(score)) * warp_sum(lane_dot(grad, v));
  }
  if (lane_of_thread() == 0) call.leaf_pull[rows.leaf_row(node.first_leaf)] = rows.mass_of_parent(parent) * gain;
}

template <class T, int kLane>
__device__ void sum_below(const NodeRows<T, kLane>& rows, int64_t family) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[family];
  if (node.parent < 0) return;  // nobody asks
  float grad[kLane], gain = 0;
  fill(grad, 0.0f);
  constexpr int kCount = kBatch<kLane>;
  for (int64_t first = 0; first < node.num_children; first += kCount) {
    BlockNode child[kCount];
    float x[kCount][kLane], its_gain[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) child[i] = call.nodes[node.first_child + min(first + i, node.num_children - 1)];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      rows.grad_y(child[i], x[i]);
      its_gain[i] = child[i].num_children == 0
                        ? call.leaf_pull[rows.leaf_row(child[i].first_leaf)]
                        : call.inner_gain[rows.slot_row(child[i])] + call.gain[rows.slot_row(child[i])];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < node.num_children) add_scaled(grad, 1.0f, x[i]), gain += its_gain[i];
    }
  }
  write_floats(call.grad_y, rows.slot_row(node), call.value_dim, grad);
  if (lane_of_thread() == 0) call.inner_gain[rows.slot_row(node)] = gain;
}

template <class T, int kLane>
__global__ void __launch_bounds__(kThreads, 1) sums_kernel(const __grid_constant__ Call call, int64_t unit_begin) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_begin; r < unit.round_end; ++r) {
    const BlockRound round = call.rounds[r];
    for_each_member(call, round, [&](int64_t n) { take_gain(rows, n); });
    for (int64_t i = round.family_begin + warp_of_thread(); i < round.family_end; i += warps_of_block()) {
      sum_below(rows, call.families[i]);
    }
    __syncthreads();
  }
}

// What a child's own weights pull at: the gradients by e(C) and g(C), and how far its gradient reaches its siblings.
template <class T, int kLane>
__device__ void weigh(const NodeRows<T, kLane>& rows, int64_t n) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[n], parent = call.nodes[node.parent];
  const float of_parent = parent.parent < 0 ? call.grad_root_energy[node.parent * call.heads + rows.head]
                                            : call.grad_energy[rows.slot_row(parent)];
  const float grad_total = static_cast<float>(node.size) / static_cast<float>(parent.size) * of_parent;
  if (lane_of_thread() != 0) return;
  if (node.num_children == 0) {
    float& pull = call.leaf_pull[rows.leaf_row(node.first_leaf)];  // was its gain
    pull = grad_total - pull;
    return;
  }
  const int64_t row = rows.slot_row(node);
  const float total = rows.total(node);
  const float kept = share_of(call.energy[row], total), given = share_of(call.log_sum[row].total(), total);
  const float delta = given * call.inner_gain[row] - kept * call.gain[row];
  call.grad_energy[row] = delta + kept * grad_total;
  call.pull[row] = given * grad_total - delta - call.gain[row];
  call.reach[row] = rows.mass_of_parent(parent) * given;
}

// A child as one that looks: everything that its weights need.
template <class T, int kLane>
struct Looking {
  LogSum log_sum;
  float pull, reach;

  __device__ Looking(const NodeRows<T, kLane>& rows, const BlockNode& node, float parent_mass) {
    const Call& call = rows.call;
    if (node.num_children == 0) {
      log_sum = call.leaf_log_sum[rows.leaf_row(node.first_leaf)];
      pull = call.leaf_pull[rows.leaf_row(node.first_leaf)];
      reach = parent_mass;
    } else {
      log_sum = call.log_sum[rows.slot_row(node)];
      pull = call.pull[rows.slot_row(node)];
      reach = call.reach[rows.slot_row(node)];
    }
  }
};

template <class T, int kLane>
__device__ void spread_inner(const NodeRows<T, kLane>& rows, int64_t n, const BlockNode& node, const BlockNode& parent,
                             const InnerFamily& family) {
  const Call& call = rows.call;
  const int lane = lane_of_thread(), own = static_cast<int>(n - family.begin);
  const int64_t row = rows.slot_row(node), k_row = row * call.dim, v_row = row * call.value_dim;
  const int64_t their_k_row = family.row * call.dim, their_v_row = family.row * call.value_dim;
  const bool is_other = lane < family.count && lane != own;
  const bool is_seen = is_other && (!call.is_causal || lane < own), sees = is_other && (!call.is_causal || lane > own);
  // this node's weight for the lane's, and the lane's for this
  const float score = call.scale * InnerFamily::dot(call.mean_q + k_row, call.mean_k + their_k_row, call.dim);
  const float grad_p = InnerFamily::dot(call.grad_y + v_row, call.mean_v + their_v_row, call.value_dim);
  const float its_score = call.scale * InnerFamily::dot(call.mean_k + k_row, call.mean_q + their_k_row, call.dim);
  const float its_grad_p = InnerFamily::dot(call.mean_v + v_row, call.grad_y + their_v_row, call.value_dim);
  const float p = is_seen ? expf(call.log_sum[row].log_weight(score + family.log_size)) : 0.0f;
  const float log_size = logf(static_cast<float>(node.size));
  const float its_p = sees ? expf(call.log_sum[family.row].log_weight(its_score + log_size)) : 0.0f;
  const float grad_score = is_seen ? p * (call.pull[row] + call.reach[row] * grad_p) : 0.0f;
  const float its_reach = call.reach[family.row];
  const float its_grad_score = sees ? its_p * (call.pull[family.row] + its_reach * its_grad_p) : 0.0f;
  const float part = static_cast<float>(node.size) / static_cast<float>(parent.size);
  const int64_t above = rows.slot_row(parent);
  const auto finish = [&](float* gradient, float weight, const float* array, int dim) {
    float sum[kLane], x[kLane];
    fill(sum, 0.0f);
    if (parent.parent >= 0) read_floats(gradient, above, dim, x), add_scaled(sum, part, x);
    family.add_rows(sum, weight, array, dim);
    write_floats(gradient, row, dim, sum);
  };
  finish(call.grad_mean_q, call.scale * grad_score, call.mean_k, call.dim);
  finish(call.grad_mean_k, call.scale * its_grad_score, call.mean_q, call.dim);
  finish(call.grad_mean_v, sees ? its_p * its_reach : 0.0f, call.grad_y, call.value_dim);
}

template <class T, int kLane>
__device__ void spread(const NodeRows<T, kLane>& rows, int64_t n) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[n], parent = call.nodes[node.parent];
  if (is_wide(parent)) return;
  const InnerFamily family(call, parent, rows.head);
  if (family.is_one) return spread_inner(rows, n, node, parent, family);
  const float mass = rows.mass_of_parent(parent);
  const Looking<T, kLane> own(rows, node, mass);
  const float log_size = logf(static_cast<float>(node.size));
  float q[kLane], k[kLane], v[kLane], grad[kLane];
  rows.q(node, q), rows.k(node, k), rows.v(node, v), rows.grad_y(node, grad);
  float grad_q[kLane], grad_k[kLane], grad_v[kLane];
  if (parent.parent < 0) {
    fill(grad_q, 0.0f), fill(grad_k, 0.0f), fill(grad_v, 0.0f);
  } else {
    const float part = static_cast<float>(node.size) / static_cast<float>(parent.size);
    float x[kLane];
    const int64_t row = rows.slot_row(parent);
    read_floats(call.grad_mean_q, row, call.dim, x), fill(grad_q, 0.0f), add_scaled(grad_q, part, x);
    read_floats(call.grad_mean_k, row, call.dim, x), fill(grad_k, 0.0f), add_scaled(grad_k, part, x);
    read_floats(call.grad_mean_v, row, call.value_dim, x), fill(grad_v, 0.0f), add_scaled(grad_v, part, x);
  }
  float* grad_position = call.grad_position + (n * call.heads + rows.head) * call.position_dim;
  constexpr int kCount = kBatch<kLane> / 2;
  const int64_t end = parent.first_child + parent.num_children;
  for (int64_t first = parent.first_child; first < end; first += kCount) {
    BlockNode siblings[kCount];
    float their_k[kCount][kLane], their_v[kCount][kLane], their_q[kCount][kLane], their_grad[kCount][kLane];
#pragma unroll
    for (int i = 0; i < kCount; ++i) siblings[i] = call.nodes[min(first + i, end - 1)];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      rows.k(siblings[i], their_k[i]), rows.v(siblings[i], their_v[i]);
      rows.q(siblings[i], their_q[i]), rows.grad_y(siblings[i], their_grad[i]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t other = first + i;
      if (other >= end || (other == n && !(call.include_self && node.num_children == 0))) continue;
      const BlockNode& sibling = siblings[i];
      const bool is_seen = !call.is_causal || other <= n, sees = !call.is_causal || n <= other;
      const float position = rows.position_score(n, other, node);
      float grad_scores = 0;
      if (is_seen) {
        const float score =
            call.scale * warp_sum(lane_dot(q, their_k[i])) + logf(static_cast<float>(sibling.size)) + position;
        const float p = expf(own.log_sum.log_weight(score));
        const float grad_score = p * (own.pull + own.reach * warp_sum(lane_dot(grad, their_v[i])));
        add_scaled(grad_q, call.scale * grad_score, their_k[i]);
        grad_scores += grad_score;
      }
      if (sees) {
        const Looking<T, kLane> its(rows, sibling, mass);
        const float score = call.scale * warp_sum(lane_dot(their_q[i], k)) + log_size + position;
        const float p = expf(its.log_sum.log_weight(score));
        const float grad_score = p * (its.pull + its.reach * warp_sum(lane_dot(their_grad[i], v)));
        add_scaled(grad_k, call.scale * grad_score, their_q[i]);
        add_scaled(grad_v, p * its.reach, their_grad[i]);
        grad_scores += grad_score;
      }
      if (call.position_dim == 0) continue;
      const bool is_itself = other == n;
      const T* its_position =
          is_itself ? rows.position_towards_itself(node.first_leaf) : rows.position_towards_siblings(other);
      float* to = is_itself ? call.grad_position +
                                  ((call.num_nodes + node.first_leaf) * call.heads + rows.head) * call.position_dim
                            : grad_position;
      for (int c = lane_of_thread(); c < call.position_dim; c += 32) {
        const float gradient = its_position ? grad_scores * to_float(its_position[c]) : 0.0f;
        to[c] = is_itself ? gradient : to[c] + gradient;
      }
    }
  }
  if (node.num_children != 0) {
    const int64_t row = rows.slot_row(node);
    write_floats(call.grad_mean_q, row, call.dim, grad_q);
    write_floats(call.grad_mean_k, row, call.dim, grad_k);
    write_floats(call.grad_mean_v, row, call.value_dim, grad_v);
    return;
  }
  write_row<T>(call.grad_q, node.first_leaf, rows.head, call.dim, grad_q);
  if (call.group == 1) {
    write_row<T>(call.grad_k, node.first_leaf, rows.head, call.dim, grad_k);
    write_row<T>(call.grad_v, node.first_leaf, rows.head, call.value_dim, grad_v);
  } else {
    write_floats(call.leaf_grad_k, rows.leaf_row(node.first_leaf), call.dim, grad_k);
    write_floats(call.leaf_grad_v, rows.leaf_row(node.first_leaf), call.value_dim, grad_v);
  }
}

template <class T, int kLane>
__global__ void __launch_bounds__(kThreads, 1) gradients_kernel(const __grid_constant__ Call call, int64_t unit_begin) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_end - 1; r >= unit.round_begin; --r) {
    const BlockRound round = call.rounds[r];
    for_each_member(call, round, [&](int64_t n) { weigh(rows, n); });
    for_each_member(call, round, [&](int64_t n) { spread(rows, n); });
  }
}

struct Stage {
  int64_t begin, end;
  dim3 grid(const Call& call) const { return dim3(static_cast<unsigned>((end - begin) * call.heads)); }
};
Stage stage_of(const AttentionParams& params, int64_t s) {
  return {params.walk.stage_begin[s].unit, params.walk.stage_begin[s + 1].unit};
}
int64_t num_stages(const AttentionParams& params) {
  return static_cast<int64_t>(params.walk.stage_begin.size()) - 1;
}

}  // namespace

void crown_fold(const Call& call, const AttentionParams& params, bool means, bool energy, cudaStream_t stream) {
  dispatch(params, [&]<class T, int kLane>() {
    for (int64_t s = 0; s < num_stages(params); ++s) {
      const Stage stage = stage_of(params, s);
      if (call.is_tied) wide_attend(call, params, s, stream);
      launch(up_kernel<T, kLane>, stage.grid(call), kThreads, 0, stream, call, stage.begin, Fold{means, energy});
    }
  });
}

void crown_up(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  crown_fold(call, params, true, true, stream);
}

void crown_down(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  dispatch(params, [&]<class T, int kLane>() {
    for (int64_t s = num_stages(params) - 1; s >= 0; --s) {
      const Stage stage = stage_of(params, s);
      launch(down_kernel<T, kLane>, stage.grid(call), kThreads, 0, stream, call, stage.begin);
    }
  });
}

void crown_sums(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  dispatch(params, [&]<class T, int kLane>() {
    for (int64_t s = 0; s < num_stages(params); ++s) {
      const Stage stage = stage_of(params, s);
      wide_gains(call, params, s, stream);
      launch(sums_kernel<T, kLane>, stage.grid(call), kThreads, 0, stream, call, stage.begin);
    }
  });
}

void crown_gradients(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  dispatch(params, [&]<class T, int kLane>() {
    for (int64_t s = num_stages(params) - 1; s >= 0; --s) {
      const Stage stage = stage_of(params, s);
      launch(gradients_kernel<T, kLane>, stage.grid(call), kThreads, 0, stream, call, stage.begin);
      wide_gradients(call, params, s, stream);
    }
  });
}

}  // namespace ramify::cuda
