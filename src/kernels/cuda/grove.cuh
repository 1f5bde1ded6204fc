// What the passes over groves share: tables as a warp reads them, which keys rows see, softmax over tiles, places.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace ramify::cuda {

enum PlaceArray { kQ, kK, kV, kGradY };

constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

// A thread holds two rows of a 16 × 16 result, h = 0 and 1, and of each the columns (n, j).
__device__ __forceinline__ int row_of(int h) {
  return lane_of_thread() / 4 + 8 * h;
}
__device__ __forceinline__ int column_of(int n, int j) {
  return 8 * n + 2 * (lane_of_thread() % 4) + j;
}

template <class Value>
__device__ __forceinline__ Value from_lane(Value value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// A tile's rows, row `lane` in each of the first 16 lanes.
struct TileRows {
  GroveTile tile;
  uint32_t range = 0;  // begin and end of its family in 16 bits each
  int family = -1;     // -1: there is no such row
  int family_place = -1;
  int size = 1;
  bool sees_itself = false;
  const uint2* sight = nullptr;  // LeafSight of a leaf, in two parts, of which the second is `blocks`

  __device__ int begin() const { return static_cast<int>(range & 0xffff); }
  __device__ int end() const { return static_cast<int>(range >> 16); }
  __device__ bool is_one_twig_of_16() const { return from_lane(end() - begin(), 0) == kRows; }
  __device__ bool is_one_family_of_16() const { return tile.num_levels == 1 && is_one_twig_of_16(); }
  __device__ int first_family() const { return from_lane(family, 0); }
  __device__ int num_families() const { return from_lane(family, tile.num_rows - 1) - first_family() + 1; }

  // The sums of a family's rows in the lane of its first row.
  __device__ float family_sums(float x) const {
    const int row = tile.row + lane_of_thread();
#pragma unroll
    for (int step = 1; step < kRows; step *= 2) {
      const float next = __shfl_down_sync(0xffffffffu, x, step);
      if (row + step < end()) x += next;
    }
    return x;
  }
  __device__ bool is_first_of_family() const {
    return family >= 0 && tile.row + lane_of_thread() == begin();
  }
};

// A grove and head as a block sees them.
struct GroveView {
  const Call& call;
  BlockGrove grove;  // a copy: through a reference it would be read again behind every wait
  int head;

  __device__ GroveTile tile(int t) const { return call.tiles[grove.tile_begin + t]; }
  __device__ GroveFamily family(int f) const { return call.grove_families[grove.family_begin + f]; }
  __device__ GrovePlace place(int p) const { return call.places[grove.place_begin + p]; }
  __device__ int64_t leaf(int row) const { return grove.leaf_begin + row; }

  __device__ static bool is_tree(const GroveFamily& its) { return its.tree_root >= 0; }
  // Rows of [.., heads] and [.., heads, 64] arrays
  __device__ int64_t slot_row(const GroveFamily& its) const { return its.slot * call.heads + head; }
  __device__ int64_t place_row(int place) const { return (grove.place_begin + place) * call.heads + head; }
  __device__ int64_t leaf_row(int row) const { return leaf(row) * call.heads + head; }

  template <class T>
  __device__ T* row_of_leaf(const Rows& rows, int row) const {
    return static_cast<T*>(rows.data) + leaf(row) * rows.row_stride + head * rows.head_stride;
  }
  // Channels 2 · lane and 2 · lane + 1.
  template <class T>
  __device__ float2 leaf_pair(const Rows& rows, int row) const {
    return unpack2<T>(reinterpret_cast<const uint32_t*>(row_of_leaf<T>(rows, row))[lane_of_thread()]);
  }

  __device__ TileRows leaf_rows(const GroveTile& tile) const {
    return leaf_rows(tile, reinterpret_cast<const uint2*>(call.leaf_sights + leaf(tile.row + lane_of_thread())));
  }
  __device__ TileRows leaf_rows(const GroveTile& tile, const uint2* sight) const {
    TileRows rows;
    rows.tile = tile;
    if (lane_of_thread() >= tile.num_rows) return rows;
    rows.sight = sight;
    const uint2 words = sight[0];
    rows.range = words.x, rows.family = static_cast<int>(words.y & 0xffff);
    rows.family_place = static_cast<int>(words.y) >> 16;
    rows.sees_itself = call.include_self;
    return rows;
  }
  template <class Tables>
  __device__ TileRows place_rows(const GroveTile& tile, const Tables& tables) const {
    TileRows rows;
    rows.tile = tile;
    if (lane_of_thread() >= tile.num_rows) return rows;
    const GrovePlace its = tables.place(tile.row + lane_of_thread());
    rows.range = static_cast<uint32_t>(its.begin) | static_cast<uint32_t>(its.end) << 16;
    rows.family = its.family, rows.family_place = its.family_place, rows.size = its.size;
    rows.sees_itself = call.include_self && its.leaf_row >= 0;
    return rows;
  }
};

// Which keys the two rows of a thread see: [begin, end), without the row itself unless it sees itself.
struct RowSight {
  int first;
  uint32_t range[2];
  bool sees_itself[2];

  __device__ RowSight(const TileRows& rows, bool is_causal) : first(rows.tile.row) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      range[h] = from_lane(rows.range, row_of(h));
      sees_itself[h] = from_lane(static_cast<int>(rows.sees_itself), row_of(h)) != 0;
      if (is_causal && range[h] != 0) see_only_left(h);
    }
  }
  // Of a tile of a wide family.
  __device__ RowSight(const GroveTile& tile, const Call& call) : first(tile.row) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      range[h] = row_of(h) < tile.num_rows ? tile.key | static_cast<uint32_t>(tile.key + tile.num_keys) << 16 : 0;
      sees_itself[h] = call.include_self;
      if (call.is_causal && range[h] != 0) see_only_left(h);
    }
  }
  __device__ void see_only_left(int h) {
    range[h] = (range[h] & 0xffff) | static_cast<uint32_t>(first + row_of(h) + 1) << 16;
  }
  __device__ bool sees(int h, int n, int j, int first_key) const {
    const int key = first_key + column_of(n, j);
    return key >= static_cast<int>(range[h] & 0xffff) && key < static_cast<int>(range[h] >> 16) &&
           (key != first + row_of(h) || sees_itself[h]);
  }
};

// The same where 16 rows are a family and all see all,
struct FullSight {
  bool sees_itself;

  __device__ bool sees(int h, int n, int j, int) const {
    return n != h || sees_itself || lane_of_thread() / 4 != 2 * (lane_of_thread() % 4) + j;
  }
};
// and where all rows of a tile are.
struct FamilySight {
  FullSight full;
  int num_rows;

  __device__ bool sees(int h, int n, int j, int key) const {
    return column_of(n, j) < num_rows && full.sees(h, n, j, key);
  }
};

// Softmax over keys that come a tile at a time, for the two rows of a thread. Scores are kept in units of log 2.
struct TileSoftmax {
  float largest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {0, 0};

  // Scores become weights that are to be divided by `sum` at the end. All keys at once, with log2 |B| of the columns,
  template <class Sight>
  __device__ void take(const Sight& sight, int first_key, const float (&offset)[2][2], float scale, float (&s)[2][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = mask(sight, h, first_key, offset, scale, s);
      sum[h] = raise(h, base_of(largest[h]), s);
    }
  }
  template <class Sight>
  __device__ void take(const Sight& sight, float scale, float (&s)[2][4]) {
    const float offset[2][2] = {};
    take(sight, 0, offset, scale, s);
  }
  // or a tile more; `factor` is for what was gathered before.
  template <class Sight>
  __device__ void add(const Sight& sight, int first_key, float scale, float (&s)[2][4], float (&factor)[2]) {
    const float offset[2][2] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float next = fmaxf(mask(sight, h, first_key, offset, scale, s), largest[h]), base = base_of(next);
      factor[h] = fast_exp2(largest[h] - base);
      sum[h] = sum[h] * factor[h] + raise(h, base, s);
      largest[h] = next;
    }
  }
  __device__ float inverse(int h) const {
    return sum[h] == 0 ? 0.0f : fast_inverse(sum[h]);
  }
  __device__ LogSum parts(int h) const {
    if (sum[h] == 0) return {minus_infinity(), 0};
    return {kLn2 * largest[h], kLn2 * fast_log2(sum[h])};
  }
  __device__ float log_sum(int h) const {
    return parts(h).total();
  }

 private:
  // Of one row: its scores, -inf for what it does not see, and the largest of them.
  template <class Sight>
  __device__ static float mask(const Sight& sight, int h, int first_key, const float (&offset)[2][2], float scale,
                               float (&s)[2][4]) {
    const float scale2 = scale * kLog2E;
    float most = minus_infinity();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[i / 2][2 * h + i % 2];
      x = sight.sees(h, i / 2, i % 2, first_key) ? scale2 * x + offset[i / 2][i % 2] : minus_infinity();
      most = fmaxf(most, x);
    }
    return row_max(most);
  }
  // Where nothing is seen weights are 0.
  __device__ static float base_of(float most) {
    return most == minus_infinity() ? 0.0f : most;
  }
  __device__ static float raise(int h, float base, float (&s)[2][4]) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = s[i / 2][2 * h + i % 2];
      x = fast_exp2(x - base);
      total += x;
    }
    return row_sum(total);
  }
};

// Weights that are to be multiplied by `inverse`, and products with grad_out: their sum is what the row is given.
__device__ __forceinline__ float gain_of(const float (&p)[2][4], const float (&grad_p)[2][4], int h, float inverse) {
  float sum = 0;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float weight = p[n][2 * h + j];
      sum += weight == 0 ? 0.0f : weight * grad_p[n][2 * h + j];  // what is not seen may be NaN
    }
  }
  return inverse * row_sum(sum);
}

// log2 |B| of the keys of a tile
__device__ __forceinline__ void log_sizes(const TileRows& rows, float (&offset)[2][2]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      offset[n][j] = fast_log2(static_cast<float>(from_lane(rows.size, column_of(n, j))));
    }
  }
}

// Of the columns of a thread: 0 where there is no row.
__device__ __forceinline__ void sizes(const TileRows& rows, float (&size)[2][2]) {
  const float own = rows.family >= 0 ? static_cast<float>(rows.size) : 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) size[i / 2][i % 2] = from_lane(own, column_of(i / 2, i % 2));
}

// What is kept of a node's own and what its siblings give it: m and w; a leaf's are 0 and 1.
struct Gates {
  float total, kept, given;

  __device__ Gates(float energy, float log_sum) {
    const float largest = fmaxf(energy, log_sum), difference = log_sum - energy;
    const bool is_nothing = largest == minus_infinity() && energy == log_sum;
    const float smaller = fast_exp2(-kLog2E * fabsf(difference)), inverse = fast_inverse(1 + smaller);
    total = is_nothing ? largest : largest + kLn2 * fast_log2(1 + smaller);
    kept = is_nothing ? 0.0f : difference > 0 ? smaller * inverse : inverse;
    given = is_nothing ? 0.0f : difference > 0 ? inverse : smaller * inverse;
  }
};

// Waits for this warp's copies.
__device__ __forceinline__ void wait_for_tiles() {
  copy_async_commit();
  copy_async_wait<0>();
  __syncwarp();
}

// Floats of places as pairs of numbers of the half type: a row is 64 high parts, then 64 low ones. Channels 2 · pair
// and 2 · pair + 1.
template <class T>
__device__ __forceinline__ void write_split(uint32_t* rows, int64_t row, int pair, float2 x) {
  uint32_t* const to = rows + row * kChannels + pair;
  const uint32_t high = pack2<T>(x.x, x.y);
  to[0] = high, to[kChannels / 2] = rest_of<T>(x.x, x.y, high);
}
template <class T>
__device__ __forceinline__ void write_split(uint32_t* rows, int64_t row, float2 x) {
  write_split<T>(rows, row, lane_of_thread(), x);
}
// Brings one part of a tile of such rows, in the background: of [places, heads, parts], high and low ones in turn.
template <class T>
__device__ __forceinline__ void load_part(const GroveView& view, uint32_t to, const GroveTile& tile, uint32_t* rows,
                                          int parts, int part) {
  const int64_t stride = int64_t{parts} * kChannels;
  const Rows from = {reinterpret_cast<T*>(rows) + part * kChannels, view.call.heads * stride, stride};
  load_tile<T>(to, from, view.grove.place_begin + tile.row, tile.num_rows, view.head);
}

// A block's warps have a tile each, of those of a tile block, and a head. With the last tiles first a pass may find in
// the second-level cache what the pass before read or wrote last.
enum class Order { first_to_last, last_to_first };
struct WarpTile {
  TileBlock block;
  int head;

  __device__ explicit WarpTile(const Call& call, Order order = Order::first_to_last)
      : head(static_cast<int>(blockIdx.x % call.heads)) {
    const int64_t item = blockIdx.x / call.heads, last = gridDim.x / call.heads - 1;
    block = call.tile_blocks[order == Order::first_to_last ? item : last - item];
  }
  __device__ bool is_there() const { return warp_of_thread() < block.num_tiles; }
  __device__ GroveTile tile(const Call& call) const { return call.tiles[block.tile + warp_of_thread()]; }
};

template <class Function>
void with_storage(const AttentionParams& params, const Function& function) {
  params.storage == Storage::bfloat16 ? function.template operator()<__nv_bfloat16>()
                                      : function.template operator()<__half>();
}
// With the storage, the warps of a block of tiles, and whether there are wide families: without them threads need fewer
// registers.
template <class Function>
void with_tile_blocks(const AttentionParams& params, const Function& function) {
  with_storage(params, [&]<class T>() {
    const BlockTotals& totals = params.walk.totals;
    if (!totals.has_wide) return function.template operator()<T, 4, false>();
    totals.block_tiles <= 8 ? function.template operator()<T, 8, true>() : function.template operator()<T, 16, true>();
  });
}
inline dim3 grid_of_tiles(const Call& call, const AttentionParams& params) {
  return dim3(static_cast<unsigned>(params.walk.tile_blocks.size() * call.heads));
}
inline dim3 grid_of_groves(const Call& call, const AttentionParams& params) {
  return dim3(static_cast<unsigned>(params.walk.groves.size() * call.heads));
}

}  // namespace ramify::cuda
