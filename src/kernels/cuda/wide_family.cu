// Tied queries in the crown's families of more than 32 children (docs/algorithm.md, sections 2 and 4): a block takes 64
// children, its own, and meets all of their siblings, 64 others at a time, in float32. Nothing of size b² is kept.
//
// Every pass is the same: scores of all pairs, numbers made of them, and these times the others' rows. Own children
// look at the others (their result, their gain, their gradients of q), or are looked at (gradients of k and v); their
// gradients of positions come of both.
#include "kernels/cuda/rows.cuh"

namespace ramify::cuda {
namespace {

constexpr int kTile = static_cast<int>(kWideTile), kSide = kTile / 4, kThreads = kSide * kSide;
constexpr int kStride = kTile + 4;  // so that eight rows are in different banks

enum class Pass { attend, gain, grad_q, grad_k, grad_v, position_looking, position_looked_at };
enum class Array { q, k, v, grad_y, position };

// What a block knows of 64 children: where their rows are, and of those that look what their weights need.
struct Children {
  int64_t row[kTile];       // of a leaf, or -1 - slot
  int64_t position[kTile];  // -1: none
  float log_size[kTile];
  LogSum log_sum[kTile];
  float pull[kTile], reach[kTile];
};
struct Memory {
  float own_rows[kTile][kStride], other_rows[kTile][kStride];  // 64 channels
  float weights[kTile][kStride];
  Children own, other;
  float own_position_product[kTile], own_position_weight[kTile];  // of own leaves that see themselves
};

template <class T, Pass kPass, int kGroups>  // of 64 channels
struct WideFamily {
  const Call& call;
  int head;
  BlockNode parent;
  int64_t begin;    // the first of the own children, from the first of the family
  int first_group;  // of the channels that are summed

  static constexpr bool kLooks =  // own children, at others
      kPass != Pass::grad_k && kPass != Pass::grad_v && kPass != Pass::position_looked_at;
  static constexpr bool kOfPositions = kPass == Pass::position_looking || kPass == Pass::position_looked_at;
  static constexpr bool kHasGradient = kPass != Pass::attend && kPass != Pass::grad_v;

  // A thread has four rows, and of scores the columns of its place and each 16 further, of sums 4 neighbouring
  // channels.
  __device__ static Memory& memory() { return shared_at<Memory>(0); }
  __device__ static int row_of(int i) { return 4 * static_cast<int>(threadIdx.x / kSide) + i; }
  __device__ static int column_of(int j) { return static_cast<int>(threadIdx.x % kSide) + kSide * j; }
  __device__ static int place_of_channel() { return 4 * static_cast<int>(threadIdx.x % kSide); }
  __device__ int channel_of(int group) const { return kTile * (first_group + group) + place_of_channel(); }

  __device__ int count(int64_t first) const {
    return static_cast<int>(min(static_cast<int64_t>(kTile), parent.num_children - first));
  }

  __device__ void describe(Children& children, int64_t first, bool are_looking) const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= count(first)) return;
    const BlockNode node = call.nodes[parent.first_child + first + i];
    const bool is_leaf = node.num_children == 0;
    children.row[i] = is_leaf ? node.first_leaf : -1 - node.slot;
    children.log_size[i] = logf(static_cast<float>(node.size));
    if (call.position_dim > 0) children.position[i] = call.node_position[parent.first_child + first + i];
    if (!are_looking || kPass == Pass::attend) return;
    const int64_t row = (is_leaf ? node.first_leaf : node.slot) * call.heads + head;
    children.log_sum[i] = is_leaf ? call.leaf_log_sum[row] : call.log_sum[row];
    if (kPass == Pass::gain) return;
    children.pull[i] = is_leaf ? call.leaf_pull[row] : call.pull[row];
    children.reach[i] = !is_leaf            ? call.reach[row]
                        : parent.parent < 0 ? 1.0f
                                            : call.mass[parent.slot * call.heads + head];
  }

  __device__ int dim_of(Array array) const {
    return array == Array::position                 ? call.position_dim
           : array == Array::q || array == Array::k ? call.dim
                                                    : call.value_dim;
  }
  __device__ float position(int64_t index, int c) const {
    if (index < 0) return 0;
    const Rows& rows = call.positions;
    return to_float(static_cast<const T*>(rows.data)[index * rows.row_stride + head * rows.head_stride + c]);
  }
  // A thread's share of 64 channels of all rows; zeros behind the last ones. Rows pass through registers as a whole: a
  // store to shared memory between two reads would make the second wait for the first.
  __device__ void read(float (&x)[4][4], Array array, const Children& children, int num_rows, int group) const {
    const Rows& leaves = array == Array::q          ? call.q
                         : array == Array::k        ? call.k
                         : array == Array::v        ? call.v
                         : array == Array::position ? call.positions
                                                    : call.grad_out;
    const int its_head = array == Array::k || array == Array::v ? head / call.group : head;
    const T* leaf_rows = static_cast<const T*>(leaves.data) + its_head * leaves.head_stride;
    const int dim = dim_of(array);
    const float* inner_rows = array == Array::q   ? call.mean_q
                              : array == Array::k ? call.mean_k
                              : array == Array::v ? call.mean_v
                                                  : call.grad_y;
    const int64_t leaf_stride = leaves.row_stride, inner_stride = static_cast<int64_t>(call.heads) * dim;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = static_cast<int>(threadIdx.x / kSide) + kSide * i;
      const int64_t row = place >= num_rows          ? 0
                          : array == Array::position ? children.position[place]
                                                     : children.row[place];
      const bool is_there = place < num_rows && (array != Array::position || row >= 0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = kTile * group + column_of(j);
        x[i][j] = !is_there || c >= dim ? 0.0f
                  : row >= 0            ? to_float(leaf_rows[row * leaf_stride + c])
                                        : inner_rows[(-1 - row) * inner_stride + static_cast<int64_t>(head) * dim + c];
      }
    }
  }
  __device__ static void store(float (&to)[kTile][kStride], const float (&x)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) to[static_cast<int>(threadIdx.x / kSide) + kSide * i][column_of(j)] = x[i][j];
    }
  }

  // sum += own rows · other rowsᵀ
  __device__ void add_dots(Array own, Array other, int own_count, int other_count, float (&sum)[4][4]) const {
    Memory& m = memory();
    for (int group = 0; kTile * group < dim_of(own); ++group) {
      float own_rows[4][4], other_rows[4][4];
      __syncthreads();  // children are described, and what was stored is used
      read(own_rows, own, m.own, own_count, group), read(other_rows, other, m.other, other_count, group);
      store(m.own_rows, own_rows), store(m.other_rows, other_rows);
      __syncthreads();
#pragma unroll 4
      for (int c = 0; c < kTile; c += 4) {
        float4 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = *reinterpret_cast<const float4*>(&m.own_rows[row_of(i)][c]);
#pragma unroll
        for (int j = 0; j < 4; ++j) b[j] = *reinterpret_cast<const float4*>(&m.other_rows[column_of(j)][c]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sum[i][j] =
                fmaf(a[i].w, b[j].w, fmaf(a[i].z, b[j].z, fmaf(a[i].y, b[j].y, fmaf(a[i].x, b[j].x, sum[i][j]))));
          }
        }
      }
    }
  }

  // sum += weights · other rows
  __device__ void add_rows(Array other, int other_count, float (&sum)[kGroups][4][4]) const {
    Memory& m = memory();
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (kTile * (first_group + group) >= dim_of(other)) break;
      float rows[4][4];
      read(rows, other, m.other, other_count, first_group + group);
      __syncthreads();  // weights are written, and what was stored is used
      store(m.other_rows, rows);
      __syncthreads();
#pragma unroll 2
      for (int j = 0; j < kTile; j += 4) {
        float4 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = *reinterpret_cast<const float4*>(&m.weights[row_of(i)][j]);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float4 x = *reinterpret_cast<const float4*>(&m.other_rows[j + n][place_of_channel()]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float weight = n == 0 ? w[i].x : n == 1 ? w[i].y : n == 2 ? w[i].z : w[i].w;
            sum[group][i][0] += weight * x.x, sum[group][i][1] += weight * x.y;
            sum[group][i][2] += weight * x.z, sum[group][i][3] += weight * x.w;
          }
        }
      }
    }
  }

  // Over the threads that share rows: half a warp.
  __device__ static float row_sum(float x) {
    for (int step = kSide / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
  }
  __device__ static float row_max(float x) {
    for (int step = kSide / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
  }

  // Whether the pair of an own child and another one counts.
  __device__ bool is_pair(int i, int64_t first_other, int j, int own_count, int other_count) const {
    if (i >= own_count || j >= other_count) return false;
    const int64_t own = begin + i, other = first_other + j;
    if (own == other) return call.include_self && memory().own.row[i] >= 0;
    return !call.is_causal || (kLooks ? other < own : own < other);
  }

  __device__ void run() const {
    Memory& m = memory();
    const int own_count = count(begin);
    describe(m.own, begin, kLooks);
    if (call.position_dim > 0 && static_cast<int>(threadIdx.x) < own_count) measure_own_position();
    float largest[4], total[4], sum[kGroups][4][4];
    fill(largest, minus_infinity()), fill(total, 0.0f);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fill(sum[group][i], 0.0f);
    }
    for (int64_t first = first_other(); first < end_of_others(); first += kTile) {
      const int other_count = count(first);
      __syncthreads();
      describe(m.other, first, !kLooks);
      float score[4][4], grad_p[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) fill(score[i], 0.0f), fill(grad_p[i], 0.0f);
      add_dots(kLooks ? Array::q : Array::k, kLooks ? Array::k : Array::q, own_count, other_count, score);
#pragma unroll
      for (int i = 0; i < 4; ++i) scale(score[i], call.scale);
      if (call.position_dim > 0) add_positions(first, own_count, other_count, score);
      if constexpr (kHasGradient) {
        add_dots(kLooks ? Array::grad_y : Array::v, kLooks ? Array::v : Array::grad_y, own_count, other_count, grad_p);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float weight[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int row = row_of(i), column = column_of(j);
          weight[j] = is_pair(row, first, column, own_count, other_count)
                          ? score[i][j] + (kLooks ? m.other.log_size[column] : m.own.log_size[row])
                          : minus_infinity();
        }
        if constexpr (kPass == Pass::attend) {
          attend(weight, largest[i], total[i], sum, i);
        } else {
          weigh(weight, grad_p[i], row_of(i), total[i]);
        }
        if constexpr (kPass != Pass::gain) {
#pragma unroll
          for (int j = 0; j < 4; ++j) m.weights[row_of(i)][column_of(j)] = weight[j];
        }
      }
      if constexpr (kOfPositions) take_out_itself(first);
      if constexpr (kPass != Pass::gain) {
        add_rows(kOfPositions            ? Array::position
                 : kPass == Pass::attend ? Array::v
                 : kPass == Pass::grad_q ? Array::k
                 : kPass == Pass::grad_k ? Array::q
                                         : Array::grad_y,
                 other_count, sum);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float whole = kPass == Pass::attend || kPass == Pass::gain ? row_sum(total[i]) : 0.0f;
      if (row_of(i) < own_count) finish(i, largest[i], whole, sum);
    }
  }

 private:
  __device__ static void scale(float (&x)[4], float factor) {
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] *= factor;
  }

  // The position of a leaf towards itself; -1: none, or it does not see itself.
  __device__ int64_t own_position(int i) const {
    const int64_t leaf = memory().own.row[i];
    return call.include_self && leaf >= 0 ? call.self_position[leaf] : -1;
  }
  __device__ void measure_own_position() const {
    const int i = static_cast<int>(threadIdx.x);
    const int64_t index = own_position(i);
    float sum = 0;
    for (int c = 0; c < call.position_dim; ++c) {
      const float x = position(index, c);
      sum += x * x;
    }
    memory().own_position_product[i] = sum;
  }
  // Calls visit(i, j) for the thread's pair of a child and itself, if it has one.
  template <class Visit>
  __device__ void for_itself(int64_t first_other, const Visit& visit) const {
    if (first_other != begin) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (row_of(i) == column_of(j)) visit(i, j);
      }
    }
  }
  // Products of places; of a leaf with itself the product of its own position instead.
  __device__ void add_positions(int64_t first, int own_count, int other_count, float (&score)[4][4]) const {
    Memory& m = memory();
    float itself = 0;
    for_itself(first, [&](int i, int j) { itself = score[i][j] + m.own_position_product[row_of(i)]; });
    add_dots(Array::position, Array::position, own_count, other_count, score);
    for_itself(first, [&](int i, int j) { score[i][j] = itself; });
  }
  // What a leaf's score with itself adds to its own position is no matter of the others' rows.
  __device__ void take_out_itself(int64_t first) const {
    Memory& m = memory();
    for_itself(first, [&](int i, int j) {
      float& weight = m.weights[row_of(i)][column_of(j)];
      m.own_position_weight[row_of(i)] = weight, weight = 0;
    });
  }

  // Causal pairs: whole tiles that own children neither see nor are seen by are left out.
  __device__ int64_t first_other() const {
    return call.is_causal && !kLooks ? begin : 0;
  }
  __device__ int64_t end_of_others() const {
    return call.is_causal && kLooks ? min(begin + kTile, parent.num_children) : parent.num_children;
  }

  // Scores become weights by a running maximum, whose change scales what was summed before.
  __device__ void attend(float (&score)[4], float& largest, float& total, float (&sum)[kGroups][4][4], int i) const {
    float next = largest;
#pragma unroll
    for (int j = 0; j < 4; ++j) next = fmaxf(next, score[j]);
    next = row_max(next);
    const float factor = next == minus_infinity() ? 1.0f : expf(largest - next);
    total *= factor;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[group][i][c] *= factor;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      score[j] = score[j] == minus_infinity() ? 0.0f : expf(score[j] - next);
      total += score[j];
    }
    largest = next;
  }

  // Scores become what the others' rows are added by.
  __device__ void weigh(float (&score)[4], const float (&grad_p)[4], int row, float& total) const {
    const Memory& m = memory();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Children& looking = kLooks ? m.own : m.other;
      const int its = kLooks ? row : column_of(j);
      const float p = score[j] == minus_infinity() ? 0.0f : expf(looking.log_sum[its].log_weight(score[j]));
      if constexpr (kPass == Pass::gain) {
        total += p == 0 ? 0.0f : p * grad_p[j];
      } else if constexpr (kPass == Pass::grad_v) {
        score[j] = p == 0 ? 0.0f : p * looking.reach[its];
      } else {
        const float factor = kOfPositions ? 1.0f : call.scale;  // of the products that the row is one side of
        score[j] = p == 0 ? 0.0f : factor * p * (looking.pull[its] + looking.reach[its] * grad_p[j]);
      }
    }
  }

  __device__ void finish(int i, float largest, float total, const float (&sum)[kGroups][4][4]) const {
    const int64_t row = memory().own.row[row_of(i)];
    const bool is_leaf = row >= 0, is_first = threadIdx.x % kSide == 0;
    const int64_t place = (is_leaf ? row : -1 - row) * call.heads + head;
    if constexpr (kPass == Pass::gain) {  // inner nodes have theirs from y (crown_attention.cu)
      const float mass = parent.parent < 0 ? 1.0f : call.mass[parent.slot * call.heads + head];
      if (is_leaf && is_first) call.leaf_pull[place] = mass * total;
      return;
    }
    if constexpr (kPass == Pass::attend) {
      const bool is_empty = total == 0;
      if (is_first) {
        (is_leaf ? call.leaf_log_sum : call.log_sum)[place] = LogSum{largest, is_empty ? 0.0f : logf(total)};
      }
      const float inverse = is_empty ? 1.0f : 1.0f / total;
      return write(call.out, call.y, nullptr, row, place, call.value_dim, i, sum, inverse, nullptr, 0);
    }
    const int64_t n = parent.first_child + begin + row_of(i);
    if constexpr (kOfPositions) return add_position_gradients(i, n, sum);
    const BlockNode node = call.nodes[n];
    const float part = static_cast<float>(node.size) / static_cast<float>(parent.size);
    const bool is_shared = call.group != 1;
    if constexpr (kPass == Pass::grad_q) {
      write(call.grad_q, call.grad_mean_q, nullptr, row, place, call.dim, i, sum, 1, call.grad_mean_q, part);
    } else if constexpr (kPass == Pass::grad_k) {
      write(call.grad_k, call.grad_mean_k, is_shared ? call.leaf_grad_k : nullptr, row, place, call.dim, i, sum, 1,
            call.grad_mean_k, part);
    } else {
      write(call.grad_v, call.grad_mean_v, is_shared ? call.leaf_grad_v : nullptr, row, place, call.value_dim, i, sum,
            1, call.grad_mean_v, part);
    }
  }

  // To what is there, zeros at first. A leaf's score with itself has the same gradient from both sides of its product.
  __device__ void add_position_gradients(int i, int64_t n, const float (&sum)[kGroups][4][4]) const {
    const Memory& m = memory();
    const int64_t own = kLooks ? own_position(row_of(i)) : -1;
    const auto row_at = [&](int64_t row) { return call.grad_position + (row * call.heads + head) * call.position_dim; };
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = channel_of(group) + j;
        if (c >= call.position_dim) continue;
        row_at(n)[c] += sum[group][i][j];
        if (own < 0) continue;
        row_at(call.num_nodes + m.own.row[row_of(i)])[c] = 2 * m.own_position_weight[row_of(i)] * position(own, c);
      }
    }
  }

  // factor · sum, and part of the parent's row of `above`: to the row of a leaf, or of an array of floats.
  __device__ void write(const Rows& leaves, float* inner, float* leaf_floats, int64_t leaf, int64_t place, int dim,
                        int i, const float (&sum)[kGroups][4][4], float factor, const float* above, float part) const {
    const float* added = above && parent.parent >= 0 ? above + (parent.slot * call.heads + head) * dim : nullptr;
    float* floats = leaf < 0 ? inner : leaf_floats;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int c = channel_of(group) + n;
        if (c >= dim) continue;
        const float value = factor * sum[group][i][n] + (added ? part * added[c] : 0.0f);
        if (floats) {
          floats[place * dim + c] = value;
        } else {
          static_cast<T*>(leaves.data)[leaf * leaves.row_stride + head * leaves.head_stride + c] = from_float<T>(value);
        }
      }
    }
  }
};

template <class T, Pass kPass, int kGroups>
__global__ void __launch_bounds__(kThreads, 2)
    wide_kernel(const __grid_constant__ Call call, int64_t tile_begin, int first_group) {
  wait_for_kernels_before();
  const HeadItem place = head_item(call);
  const WideTile tile = call.wide_tiles[tile_begin + place.item];
  WideFamily<T, kPass, kGroups>{call, place.head, call.nodes[tile.family], tile.begin, first_group}.run();
}

// `width`: of the rows that are summed. More than 256 channels are summed in turn.
template <Pass kPass>
void run_pass(const Call& call, const AttentionParams& params, int64_t stage, int width, cudaStream_t stream) {
  constexpr int kMostGroups = 4;
  const int64_t begin = params.walk.stage_begin[stage].wide_tile, end = params.walk.stage_begin[stage + 1].wide_tile;
  if (begin == end) return;
  const dim3 grid(static_cast<unsigned>((end - begin) * call.heads));
  dispatch(params, [&]<class T, int kLane>() {
    for (int group = 0; kTile * group < width; group += kMostGroups) {
      const auto run = [&](auto* kernel) {
        launch(kernel, grid, kThreads, sizeof(Memory), stream, call, begin, group);
      };
      const int left = width - kTile * group;
      left <= kTile       ? run(wide_kernel<T, kPass, 1>)
      : left <= 2 * kTile ? run(wide_kernel<T, kPass, 2>)
                          : run(wide_kernel<T, kPass, kMostGroups>);
    }
  });
}

}  // namespace

void wide_attend(const Call& call, const AttentionParams& params, int64_t stage, cudaStream_t stream) {
  run_pass<Pass::attend>(call, params, stage, max(call.value_dim, 1), stream);  // also without values: masses
}

void wide_gains(const Call& call, const AttentionParams& params, int64_t stage, cudaStream_t stream) {
  run_pass<Pass::gain>(call, params, stage, 1, stream);
}

void wide_gradients(const Call& call, const AttentionParams& params, int64_t stage, cudaStream_t stream) {
  run_pass<Pass::grad_q>(call, params, stage, call.dim, stream);
  run_pass<Pass::grad_k>(call, params, stage, call.dim, stream);
  run_pass<Pass::grad_v>(call, params, stage, call.value_dim, stream);
  run_pass<Pass::position_looking>(call, params, stage, call.position_dim, stream);
  run_pass<Pass::position_looked_at>(call, params, stage, call.position_dim, stream);
}

}  // namespace ramify::cuda
