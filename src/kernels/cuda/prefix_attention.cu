// Tied queries with causal=prefix (docs/algorithm.md, section 5): a warp takes a leaf, and climbs from family to
// family. On every level it looks at the left siblings of its ancestor with the mean query of the ancestor's leaves so
// far; what it has gathered below is one more entry of the same softmax, of weight e:
//
//     t = log(exp e + sum_B exp s_B),  m = exp(e - t),  p_B = exp(s_B - t),  y' = m y + sum_B p_B v_B
//
// A leaf begins with e = -inf and sees itself among its siblings. At the last leaf of a node all of this is that of
// causal=block, so the t of complete nodes come from the crown. Backward climbs again and keeps a few numbers a leaf
// and family (Climb); then it goes down family by family, as later leaves' e hold the t of complete nodes.
#include "kernels/cuda/looked_at.cuh"

namespace ramify::cuda {
namespace {

// A softmax that goes on from a weight e, which stands for what was gathered before.
template <int kCount>
struct Gathering {
  float largest, sum;
  float values[kCount];

  __device__ void begin(float energy) { largest = energy, sum = energy == minus_infinity() ? 0.0f : 1.0f; }
  __device__ void add(float score, const float (&v)[kCount]) {
    if (score == minus_infinity()) return;
    const float next = fmaxf(largest, score);
    const float factor = expf(largest - next), p = expf(score - next);
    sum = sum * factor + p;
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = values[j] * factor + p * v[j];
    largest = next;
  }
  // Returns t.
  __device__ LogSum finish() {
    if (sum == 0) return {minus_infinity(), 0};
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] *= inverse;
    return {largest, logf(sum)};
  }
};

// Calls look(parent, n, energy, q) on every level, with the mean query of the leaves so far below child n of `parent`
// and e there; it returns t.
template <class T, int kLane, class Look>
__device__ void climb(const NodeRows<T, kLane>& rows, int64_t leaf, const Look& look) {
  const Call& call = rows.call;
  int64_t n = call.leaf_nodes[leaf];
  float sum[kLane], count = 1, energy = minus_infinity();
  rows.q(call.nodes[n], sum);
  for (int64_t up = call.nodes[n].parent; up >= 0; n = up, up = call.nodes[up].parent) {
    const BlockNode parent = call.nodes[up];
    float q[kLane];
#pragma unroll
    for (int j = 0; j < kLane; ++j) q[j] = sum[j] / count;
    const float below = count * look(parent, n, energy, q);
    float complete = 0;
    for (int64_t other = parent.first_child; other < n; ++other) {
      const BlockNode sibling = call.nodes[other];
      const auto size = static_cast<float>(sibling.size);
      float x[kLane];
      rows.q(sibling, x);
      add_scaled(sum, size, x);
      complete += size * rows.total(sibling), count += size;
    }
    energy = (complete + below) / count;
  }
}

// Calls visit(score, v) for what is seen from child n of a family with a query: left siblings, and a leaf itself.
template <class T, int kLane, class Visit>
__device__ void for_each_score(const NodeRows<T, kLane>& rows, const BlockNode& parent, int64_t n,
                               const float (&q)[kLane], const Visit& visit) {
  const Call& call = rows.call;
  const BlockNode node = call.nodes[n];
  const int64_t end = node.num_children == 0 ? n + 1 : n;
  for (int64_t other = parent.first_child; other < end; ++other) {
    const BlockNode sibling = call.nodes[other];
    float k[kLane], v[kLane];
    rows.k(sibling, k), rows.v(sibling, v);
    const float score = call.scale * warp_sum(lane_dot(q, k)) + logf(static_cast<float>(sibling.size)) +
                        rows.position_score(n, other, node);
    visit(score, k, v);
  }
}

template <class T, int kLane>
__global__ void __launch_bounds__(kLookThreads) prefix_forward_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const int64_t item = int64_t{blockIdx.x} * warps_of_block() + warp_of_thread(), leaf = item / call.heads;
  if (leaf >= call.num_leaves || call.nodes[call.leaf_nodes[leaf]].parent < 0) return;  // a bare leaf
  const NodeRows<T, kLane> rows{call, static_cast<int>(item % call.heads)};
  Gathering<kLane> y;
  fill(y.values, 0.0f);
  climb(rows, leaf, [&](const BlockNode& parent, int64_t n, float energy, const float(&q)[kLane]) {
    y.begin(energy);
    for_each_score(rows, parent, n, q,
                   [&](float score, const float(&)[kLane], const float(&v)[kLane]) { y.add(score, v); });
    return y.finish().total();
  });
  write_row<T>(call.out, leaf, rows.head, call.value_dim, y.values);
}

template <class T, int kLane>
__device__ Climb& climb_of(const NodeRows<T, kLane>& rows, const BlockNode& family, int64_t leaf) {
  return rows.call.climbs[(family.climb + leaf - family.first_leaf) * rows.call.heads + rows.head];
}

// Every leaf's way up again: shares, and products with its gradient; what comes to it from above, at the root.
template <class T, int kLane>
__global__ void __launch_bounds__(kLookThreads) climb_again_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const int64_t item = int64_t{blockIdx.x} * warps_of_block() + warp_of_thread(), leaf = item / call.heads;
  if (leaf >= call.num_leaves || call.nodes[call.leaf_nodes[leaf]].parent < 0) return;
  const NodeRows<T, kLane> rows{call, static_cast<int>(item % call.heads)};
  float grad[kLane];
  rows.grad_y(call.nodes[call.leaf_nodes[leaf]], grad);
  Gathering<1> product;  // grad_out · y
  fill(product.values, 0.0f);
  int64_t root = 0;
  climb(rows, leaf, [&](const BlockNode& parent, int64_t n, float energy, const float(&q)[kLane]) {
    Climb numbers;
    numbers.below = product.values[0];
    product.begin(energy);
    for_each_score(rows, parent, n, q, [&](float score, const float(&)[kLane], const float(&v)[kLane]) {
      const float gained[1] = {warp_sum(lane_dot(grad, v))};
      product.add(score, gained);
    });
    numbers.total = product.finish();
    numbers.all = product.values[0];
    numbers.kept = energy == minus_infinity() ? 0.0f : expf(numbers.total.log_weight(energy));
    if (lane_of_thread() == 0) climb_of(rows, parent, leaf) = numbers;
    root = call.nodes[n].parent;
    return numbers.total.total();
  });
  if (lane_of_thread() != 0) return;
  const bool is_last = leaf + 1 == call.nodes[root].first_leaf + call.nodes[root].size;
  call.leaf_pull[rows.leaf_row(leaf)] = is_last ? call.grad_root_energy[root * call.heads + rows.head] : 0.0f;
  call.leaf_mass[rows.leaf_row(leaf)] = 1;
}

// Of the leaves below a child, in its family: gradients by t, from those by the family's e. A leaf's own e holds its t,
// and those of later leaves hold the t of the child's last leaf.
template <class T, int kLane>
__device__ void take_slopes(const NodeRows<T, kLane>& rows, const BlockNode& child, const BlockNode& parent) {
  const Call& call = rows.call;
  const auto slope = [&](int64_t leaf) {
    return call.leaf_pull[rows.leaf_row(leaf)] / static_cast<float>(leaf + 1 - parent.first_leaf);
  };
  const int64_t end = child.first_leaf + child.size;
  float later = 0;
  for (int64_t leaf = end + lane_of_thread(); leaf < parent.first_leaf + parent.size; leaf += 32) later += slope(leaf);
  later = warp_sum(later);
  for (int64_t leaf = child.first_leaf + lane_of_thread(); leaf < end; leaf += 32) {
    Climb& numbers = climb_of(rows, parent, leaf);
    const float own = leaf + 1 == end ? slope(leaf) + later : slope(leaf);
    numbers.slope = static_cast<float>(leaf + 1 - child.first_leaf) * own;
    numbers.mass = call.leaf_mass[rows.leaf_row(leaf)];
  }
}

// Then those by the child's e, and the share of what is below it.
template <class T, int kLane>
__device__ void pass_down(const NodeRows<T, kLane>& rows, const BlockNode& child, const BlockNode& parent) {
  const Call& call = rows.call;
  for (int64_t leaf = child.first_leaf + lane_of_thread(); leaf < child.first_leaf + child.size; leaf += 32) {
    const Climb numbers = climb_of(rows, parent, leaf);
    const float change = numbers.slope + numbers.mass * (numbers.below - numbers.all);
    call.leaf_pull[rows.leaf_row(leaf)] = numbers.kept == 0 ? 0.0f : numbers.kept * change;
    call.leaf_mass[rows.leaf_row(leaf)] = numbers.kept * numbers.mass;
  }
}

// A score's weight in its leaf's output, and its gradient.
struct Scored {
  float weight, gradient;
};
__device__ Scored scored(const Climb& numbers, float score, float product) {
  const float p = expf(numbers.total.log_weight(score));
  if (p == 0) return {0, 0};  // whatever the other numbers are
  return {numbers.mass * p, p * (numbers.slope + numbers.mass * (product - numbers.all))};
}

// The mean queries of the leaves of a child, one after the other.
template <class T, int kLane>
struct MeanQuery {
  const NodeRows<T, kLane>& rows;
  float sum[kLane], mean[kLane];

  __device__ explicit MeanQuery(const NodeRows<T, kLane>& of) : rows(of) { fill(sum, 0.0f); }
  __device__ void next(const BlockNode& child, int64_t leaf) {
    float q[kLane];
    read_row<T>(rows.call.q, leaf, rows.head, rows.call.dim, q);
    add_scaled(sum, 1.0f, q);
    const float count = static_cast<float>(leaf + 1 - child.first_leaf);
#pragma unroll
    for (int j = 0; j < kLane; ++j) mean[j] = sum[j] / count;
  }
};

// Gradients by the mean queries that look from a child go to all leaves that the means are of.
template <class T, int kLane>
__device__ void share_queries(const NodeRows<T, kLane>& rows, int64_t n, const BlockNode& parent) {
  const Call& call = rows.call;
  const BlockNode child = call.nodes[n];
  const bool is_leaf = child.num_children == 0;
  if (!is_leaf && n == parent.first_child) return;  // it sees nothing
  MeanQuery<T, kLane> query(rows);
  float gradient[kLane];
  for (int64_t leaf = child.first_leaf; leaf < child.first_leaf + child.size; ++leaf) {
    query.next(child, leaf);
    const Climb numbers = climb_of(rows, parent, leaf);
    float grad[kLane];
    read_row<T>(call.grad_out, leaf, rows.head, call.value_dim, grad);
    fill(gradient, 0.0f);
    for_each_score(rows, parent, n, query.mean, [&](float score, const float(&k)[kLane], const float(&v)[kLane]) {
      add_scaled(gradient, scored(numbers, score, warp_sum(lane_dot(grad, v))).gradient, k);
    });
    const float share = call.scale / static_cast<float>(leaf + 1 - child.first_leaf);
#pragma unroll
    for (int j = 0; j < kLane; ++j) gradient[j] *= share;
    if (!is_leaf) write_floats(call.query_part, rows.leaf_row(leaf), call.dim, gradient);
  }
  float sum[kLane], x[kLane];
  if (is_leaf) {  // the last family that it is below
    read_floats(call.query_sum, rows.leaf_row(child.first_leaf), call.dim, sum);
    add_scaled(sum, 1.0f, gradient);
    write_row<T>(call.grad_q, child.first_leaf, rows.head, call.dim, sum);
    return;
  }
  float later[kLane];
  fill(later, 0.0f);
  for (int64_t leaf = child.first_leaf + child.size - 1; leaf >= child.first_leaf; --leaf) {
    read_floats(call.query_part, rows.leaf_row(leaf), call.dim, x), add_scaled(later, 1.0f, x);
    read_floats(call.query_sum, rows.leaf_row(leaf), call.dim, sum), add_scaled(sum, 1.0f, later);
    write_floats(call.query_sum, rows.leaf_row(leaf), call.dim, sum);
  }
}

template <class T, int kLane>
__global__ void __launch_bounds__(kLookThreads) descend_kernel(const __grid_constant__ Call call, int64_t unit_begin) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const BlockUnit unit = call.units[unit_begin + place.item];
  const NodeRows<T, kLane> rows{call, place.head};
  for (int64_t r = unit.round_end - 1; r >= unit.round_begin; --r) {
    const auto for_each_child = [&](const auto& visit) {
      for_each_member(call, call.rounds[r],
                      [&](int64_t n) { visit(n, call.nodes[n], call.nodes[call.nodes[n].parent]); });
    };
    for_each_child([&](int64_t, const BlockNode& child, const BlockNode& parent) { take_slopes(rows, child, parent); });
    for_each_child([&](int64_t, const BlockNode& child, const BlockNode& parent) { pass_down(rows, child, parent); });
    for_each_child([&](int64_t n, const BlockNode&, const BlockNode& parent) { share_queries(rows, n, parent); });
  }
}

// The leaves below a child look with mean queries, which one warp takes in order.
template <class T, int kLane>
struct PrefixLook {
  __device__ static float add(KeyGradient<kLane>& to, const NodeRows<T, kLane>& rows, const BlockNode& parent,
                              int64_t from, float offset, Team team) {
    const Call& call = rows.call;
    if ((from - parent.first_child) % team.step != team.first) return 0;
    const BlockNode child = call.nodes[from];
    MeanQuery<T, kLane> query(rows);
    float grad_scores = 0;
    for (int64_t leaf = child.first_leaf; leaf < child.first_leaf + child.size; ++leaf) {
      query.next(child, leaf);
      float grad[kLane];
      read_row<T>(call.grad_out, leaf, rows.head, call.value_dim, grad);
      const float score = call.scale * warp_sum(lane_dot(query.mean, to.k)) + offset;
      const Scored here = scored(climb_of(rows, parent, leaf), score, warp_sum(lane_dot(grad, to.v)));
      add_scaled(to.grad_k, call.scale * here.gradient, query.mean);
      add_scaled(to.grad_v, here.weight, grad);
      grad_scores += here.gradient;
    }
    return grad_scores;
  }
};

}  // namespace

void prefix_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  crown_up(call, params, stream);
  dispatch(params, [&]<class T, int kLane>() {
    launch(prefix_forward_kernel<T, kLane>, warps_grid(call.num_leaves * call.heads), kLookThreads, 0, stream, call);
  });
}

void prefix_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const int64_t numbers = call.num_leaves * call.heads * call.dim;
  require(cudaMemsetAsync(call.query_sum, 0, numbers * sizeof(float), stream), "memset");
  dispatch(params, [&]<class T, int kLane>() {
    launch(climb_again_kernel<T, kLane>, warps_grid(call.num_leaves * call.heads), kLookThreads, 0, stream, call);
    for (auto s = static_cast<int64_t>(params.walk.stage_begin.size()) - 2; s >= 0; --s) {
      const int64_t begin = params.walk.stage_begin[s].unit, end = params.walk.stage_begin[s + 1].unit;
      launch(descend_kernel<T, kLane>, dim3(static_cast<unsigned>((end - begin) * call.heads)), kLookThreads, 0, stream,
             call, begin);
    }
    looked_at_backward<T, kLane, PrefixLook<T, kLane>>(call, params, stream);
  });
}

}  // namespace ramify::cuda
