// Tied queries in groves: 64 channels of a half type, families of leaves up to 256 wide and others up to 16, a block
// for a grove and head. A warp takes a tile of 16 rows at a time: families that share a tile are kept apart by masks,
// wide ones look at several tiles of keys (docs/algorithm.md, sections 2 and 4; docs/kernels.md).
//
// Inside a grove everything is as if its roots had y = 0 and pi = 1. What is above adds y + pi · out (groves_finish).
#include "kernels/cuda/tile.cuh"

namespace ramify::cuda {
namespace {

constexpr int kTilesOfWarp = 2;  // forward keeps their results in registers

enum PlaceArray { kQ, kK, kV, kGradY };
enum PlaceNumber { kEnergy, kLogSum, kKept, kGiven, kMass, kGain, kInnerGain, kGradEnergy, kPlaceNumbers };

// A block's shared memory.
struct Memory {
  char* staging;  // of this warp: `arrays` tiles
  char* places;   // arrays × {high, low} × rows
  float* numbers;
  float *leaf_log_sum, *leaf_gain;  // of rows
  float* scratch;                   // of this warp: 16 numbers
  int num_places;

  __device__ Memory(int arrays, int warps, int most_places, int most_rows) : num_places(most_places) {
    char* at = dynamic_shared();
    staging = at + warp_of_thread() * arrays * kTileBytes;
    at += warps * arrays * kTileBytes;
    places = at;
    at += 2 * arrays * most_places * kRowBytes;
    numbers = reinterpret_cast<float*>(at);
    leaf_log_sum = numbers + kPlaceNumbers * most_places;
    leaf_gain = leaf_log_sum + most_rows;
    scratch = leaf_gain + most_rows + warp_of_thread() * kRows;
  }
  static size_t size(int arrays, int warps, int most_places, int most_rows) {
    return size_t{1} * warps * arrays * kTileBytes + size_t{2} * arrays * most_places * kRowBytes +
           sizeof(float) * (kPlaceNumbers * most_places + 2 * most_rows + warps * kRows);
  }

  // rows from `place` on; a tile where `place` is the first of one
  __device__ Tile tile(PlaceArray array, int place) const {
    char* high = places + (2 * array * num_places + place) * kRowBytes;
    return {high, high + num_places * kRowBytes};
  }
  __device__ float& number(PlaceNumber which, int place) const { return numbers[which * num_places + place]; }

  // The same memory as a row of floats: channels [0, 32) in high, the rest in low.
  __device__ float* floats(PlaceArray array, int place, int channel) const {
    const Tile row = tile(array, place);
    return reinterpret_cast<float*>(channel < 32 ? row.high : row.low) + channel % 32;
  }
};

__device__ __forceinline__ int row_of(int h) {
  return lane_of_thread() / 4 + 8 * h;
}
__device__ __forceinline__ int column_of(int n, int j) {
  return 8 * n + 2 * (lane_of_thread() % 4) + j;
}

// Which keys the two rows of a thread see: [begin, end), without the row itself unless it sees itself.
struct RowSight {
  int first;          // row of the tile's first
  uint32_t range[2];  // begin and end in 16 bits each
  int family[2];
  bool sees_itself[2];

  __device__ int row(int h) const { return first + row_of(h); }
  __device__ bool sees(int h, int key) const {
    return key >= static_cast<int>(range[h] & 0xffff) && key < static_cast<int>(range[h] >> 16) &&
           (key != row(h) || sees_itself[h]);
  }
};

struct GroveView {
  const Call& call;
  const BlockGrove& grove;  // in shared memory: registers are dear
  int head;

  __device__ GroveTile tile(int t) const { return call.tiles[grove.tile_begin + t]; }
  __device__ GroveFamily family(int f) const { return call.grove_families[grove.family_begin + f]; }
  __device__ GrovePlace place(int p) const { return call.places[grove.place_begin + p]; }
  __device__ int family_of_row(int row) const { return static_cast<int>(call.leaf_families[grove.leaf_begin + row]); }

  __device__ void limit(RowSight& sight, int h, int f) const {
    const GroveFamily its = family(f);
    sight.family[h] = f;
    sight.range[h] =
        static_cast<uint32_t>(its.begin) | static_cast<uint32_t>(call.is_causal ? sight.row(h) + 1 : its.end) << 16;
  }
  __device__ RowSight leaf_sight(int first, int count) const {
    RowSight sight;
    sight.first = first;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sight.range[h] = 0, sight.family[h] = -1, sight.sees_itself[h] = call.include_self;
      if (row_of(h) < count) limit(sight, h, family_of_row(sight.row(h)));
    }
    return sight;
  }
  __device__ RowSight place_sight(const GroveTile& t) const {
    RowSight sight;
    sight.first = t.row;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sight.range[h] = 0, sight.family[h] = -1, sight.sees_itself[h] = false;
      if (row_of(h) >= t.num_rows) continue;
      const GrovePlace its = place(sight.row(h));
      sight.sees_itself[h] = call.include_self && its.leaf_row >= 0;
      limit(sight, h, its.family);
    }
    return sight;
  }
  // log |B| of the keys of a tile of places
  __device__ void log_sizes(const GroveTile& t, float (&offset)[2][2]) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = column_of(n, j);
        offset[n][j] = key < t.num_rows ? __logf(static_cast<float>(place(t.row + key).size)) : 0.0f;
      }
    }
  }

  // e and pi where a family hangs on the grove's roots or above: of trees nothing is there.
  __device__ bool is_tree(const GroveFamily& its) const {
    return its.tree_root >= 0;
  }
  __device__ int64_t slot_row(const GroveFamily& its) const {
    return its.slot * call.heads + head;
  }
};

// Softmax over keys that come a tile at a time, for the two rows of a thread.
struct TileSoftmax {
  float largest[2] = {minus_infinity(), minus_infinity()}, sum[2] = {0, 0};

  // Scores become weights that are to be divided by `sum` at the end; `factor` is for what was gathered before.
  __device__ void add(const RowSight& sight, int first_key, const float (&offset)[2][2], float scale, float (&s)[2][4],
                      float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float next = minus_infinity();
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& x = s[n][2 * h + j];
          x = sight.sees(h, first_key + column_of(n, j)) ? scale * x + offset[n][j] : minus_infinity();
          next = fmaxf(next, x);
        }
      }
      next = fmaxf(row_max(next), largest[h]);
      factor[h] = largest[h] == minus_infinity() ? 0.0f : __expf(largest[h] - next);
      float total = 0;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& x = s[n][2 * h + j];
          x = sight.sees(h, first_key + column_of(n, j)) ? __expf(x - next) : 0.0f;
          total += x;
        }
      }
      sum[h] = sum[h] * factor[h] + row_sum(total);
      largest[h] = next;
    }
  }
  __device__ float inverse(int h) const {
    return sum[h] == 0 ? 0.0f : 1.0f / sum[h];
  }
  __device__ float log_sum(int h) const {
    return sum[h] == 0 ? minus_infinity() : largest[h] + __logf(sum[h]);
  }
};

__device__ __forceinline__ float fast_log_add(float a, float b) {
  const float largest = fmaxf(a, b);
  if (largest == minus_infinity() && a == b) return largest;
  return largest + __logf(__expf(a - largest) + __expf(b - largest));
}

// Waits for this warp's copies.
__device__ __forceinline__ void wait_for_tiles() {
  copy_async_commit();
  copy_async_wait<0>();
  __syncwarp();
}

__device__ __forceinline__ const BlockGrove& share_grove(const Call& call, int64_t number) {
  __shared__ BlockGrove grove;
  if (threadIdx.x == 0) grove = call.groves[number];
  __syncthreads();
  return grove;
}

// What all passes over a grove share. kArrays: q, k, v and, on the way back, grad_out.
template <class T, int kWarps, int kArrays>
struct GroveWalk {
  GroveView view;
  Memory memory;

  __device__ GroveWalk(const Call& call, const BlockGrove& grove, int head, int most_places, int most_rows)
      : view{call, grove, head}, memory(kArrays, kWarps, most_places, most_rows) {}

  __device__ const Rows& tensor(int array) const {
    const Call& call = view.call;
    return array == kQ ? call.q : array == kK ? call.k : array == kV ? call.v : call.grad_out;
  }
  __device__ Tile staged(int array) const { return {memory.staging + array * kTileBytes, nullptr}; }
  __device__ void load(int array, int row, int count) const {
    load_tile<T>(staged(array).high, tensor(array), view.grove.leaf_begin + row, min(count, kRows), view.head);
  }
  // All of a tile of leaves, but the keys and values of a wide family.
  __device__ void load_leaves(const GroveTile& tile) const {
    load(kQ, tile.row, tile.num_rows);
    if constexpr (kArrays == 4) load(kGradY, tile.row, tile.num_rows);
    if (tile.num_keys <= kRows) load(kK, tile.row, tile.num_rows), load(kV, tile.row, tile.num_rows);
  }
  __device__ int64_t leaf(int row) const { return view.grove.leaf_begin + row; }

  // Leaves among inner nodes get their places; all others are 0.
  __device__ void prepare_places() const {
    const int used = view.grove.num_places, chunks = kRowBytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kArrays * used * chunks; i += kWarps * 32) {
      const int array = i / (used * chunks), rest = i % (used * chunks);
      zero16(memory.places + array * memory.num_places * kRowBytes + rest * 16);
    }
    __syncthreads();
    for (int p = warp_of_thread(); p < used; p += kWarps) {
      const int row = view.place(p).leaf_row;
      if (row < 0) continue;
      const int array = lane_of_thread() / 8, chunk = lane_of_thread() % 8;
      if (array < kArrays) {
        const Rows& rows = tensor(array);
        const T* from =
            static_cast<const T*>(rows.data) + leaf(row) * rows.row_stride + view.head * rows.head_stride + 8 * chunk;
        // a row's chunks are exchanged by its place in its tile
        *reinterpret_cast<uint4*>(cell(memory.tile(static_cast<PlaceArray>(array), p & ~15).high, p & 15, chunk)) =
            *reinterpret_cast<const uint4*>(from);
      }
      if (lane_of_thread() == 0) {
        memory.number(kEnergy, p) = minus_infinity();
        memory.number(kInnerGain, p) = 0;
      }
    }
  }

  // A family's means, energy and gain, to its place or to its slot.
  struct Folded {
    float2 mean[kArrays];
    float energy, gain;
  };
  __device__ void deliver(const GroveFamily& family, const Folded& folded) const {
    const Call& call = view.call;
    if (family.place >= 0) {
#pragma unroll
      for (int a = 0; a < kArrays; ++a) {
        write_pair<T>(memory.tile(static_cast<PlaceArray>(a), family.place & ~15), family.place & 15, folded.mean[a]);
      }
      if (lane_of_thread() == 0) {
        memory.number(kEnergy, family.place) = folded.energy;
        memory.number(kInnerGain, family.place) = folded.gain;
      }
      return;
    }
    const int64_t row = view.slot_row(family), at = row * kChannels + 2 * lane_of_thread();
    if constexpr (kArrays == 4) {
      if (view.is_tree(family)) return;
      const float leaves = static_cast<float>(family.size);
      *reinterpret_cast<float2*>(call.grad_y + at) =
          make_float2(leaves * folded.mean[kGradY].x, leaves * folded.mean[kGradY].y);
      if (lane_of_thread() == 0) call.inner_gain[row] = call.mass[row] * folded.gain;
    } else {
      if (view.is_tree(family)) {
        if (lane_of_thread() == 0) call.root_energy[family.tree_root * call.heads + view.head] = folded.energy;
        return;
      }
      *reinterpret_cast<float2*>(call.mean_q + at) = folded.mean[kQ];
      *reinterpret_cast<float2*>(call.mean_k + at) = folded.mean[kK];
      *reinterpret_cast<float2*>(call.mean_v + at) = folded.mean[kV];
      if (lane_of_thread() == 0) call.energy[row] = folded.energy;
    }
  }

  // Families of the leaves in a staged tile, whose log-sums and gains are there.
  __device__ void fold_leaves(const GroveTile& tile) const {
    for (int row = tile.row; row < tile.row + tile.num_rows;) {
      const GroveFamily family = view.family(view.family_of_row(row));
      Folded folded = {};
      for (; row < family.end; ++row) {
#pragma unroll
        for (int a = 0; a < kArrays; ++a) {
          const float2 x = read_pair<T>(staged(a).high, row - tile.row);
          folded.mean[a].x += x.x, folded.mean[a].y += x.y;
        }
        folded.energy += memory.leaf_log_sum[row];
        if constexpr (kArrays == 4) folded.gain += memory.leaf_gain[row];
      }
      finish_leaves(family, folded);
    }
  }
  // Families of several tiles, from global memory, which the caches still have.
  __device__ void fold_wide_leaves() const {
    for (int f = warp_of_thread(); f < view.grove.num_leaf_families; f += kWarps) {
      const GroveFamily family = view.family(f);
      if (family.end - family.begin <= kRows) continue;
      Folded folded = {};
      for (int row = family.begin; row < family.end; ++row) {
#pragma unroll
        for (int a = 0; a < kArrays; ++a) {
          const Rows& rows = tensor(a);
          const T* from = static_cast<const T*>(rows.data) + leaf(row) * rows.row_stride + view.head * rows.head_stride;
          const float2 x = unpack2<T>(reinterpret_cast<const uint32_t*>(from)[lane_of_thread()]);
          folded.mean[a].x += x.x, folded.mean[a].y += x.y;
        }
        folded.energy += memory.leaf_log_sum[row];
        if constexpr (kArrays == 4) folded.gain += memory.leaf_gain[row];
      }
      finish_leaves(family, folded);
    }
  }
  __device__ void finish_leaves(const GroveFamily& family, Folded& folded) const {
    const float inverse = 1.0f / static_cast<float>(family.size);
#pragma unroll
    for (int a = 0; a < kArrays; ++a) folded.mean[a].x *= inverse, folded.mean[a].y *= inverse;
    folded.energy *= inverse;
    deliver(family, folded);
  }

  // Families of a tile of places, whose gates are there; scratch has t of its rows.
  __device__ void fold_places(const GroveTile& tile) const {
    for (int row = tile.row; row < tile.row + tile.num_rows;) {
      const GroveFamily family = view.family(view.place(row).family);
      Folded folded = {};
      for (; row < family.end; ++row) {
        const float part = static_cast<float>(view.place(row).size) / static_cast<float>(family.size);
#pragma unroll
        for (int a = 0; a < kArrays; ++a) {
          const float2 x = read_pair<T>(memory.tile(static_cast<PlaceArray>(a), tile.row), row - tile.row);
          folded.mean[a].x += part * x.x, folded.mean[a].y += part * x.y;
        }
        folded.energy += part * memory.scratch[row - tile.row];
        if constexpr (kArrays == 4) {
          folded.gain += memory.number(kGiven, row) * memory.number(kGain, row) +
                         memory.number(kKept, row) * memory.number(kInnerGain, row);
        }
      }
      deliver(family, folded);
    }
  }

  // The gates of a tile's rows: m and w of a leaf are 0 and 1.
  __device__ void set_gates(const GroveTile& tile, const TileSoftmax& softmax) const {
    if (lane_of_thread() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(h) >= tile.num_rows) continue;
        const int place = tile.row + row_of(h);
        const float energy = memory.number(kEnergy, place), log_sum = softmax.log_sum(h);
        const float total = fast_log_add(energy, log_sum);
        memory.scratch[row_of(h)] = total;
        memory.number(kLogSum, place) = log_sum;
        memory.number(kKept, place) = total == minus_infinity() ? 0.0f : __expf(energy - total);
        memory.number(kGiven, place) = total == minus_infinity() ? 0.0f : __expf(log_sum - total);
      }
    }
    __syncwarp();
  }
};

// Forward.

template <class T, int kWarps>
struct ForwardGrove : GroveWalk<T, kWarps, 3> {
  using Base = GroveWalk<T, kWarps, 3>;
  using Base::Base, Base::view, Base::memory, Base::staged, Base::load;

  // Leaves attend inside their families: `values` is a(C), and with include_self what the leaf has of itself.
  __device__ void attend_leaves(const GroveTile& tile, float (&values)[8][4]) const {
    const bool is_wide = tile.num_keys > kRows;
    const RowSight sight = view.leaf_sight(tile.row, tile.num_rows);
    const float offset[2][2] = {};
    TileSoftmax softmax;
    for (int first = 0; first < tile.num_keys; first += kRows) {
      if (is_wide) {
        __syncwarp();
        load(kK, tile.key + first, tile.num_keys - first), load(kV, tile.key + first, tile.num_keys - first);
      }
      wait_for_tiles();
      float s[2][4] = {}, factor[2];
      add_scores<T, false>(s, staged(kQ), staged(kK));
      softmax.add(sight, tile.key + first, offset, view.call.scale, s, factor);
      if (is_wide) scale_rows(values, factor);
      add_product<T, false>(values, split_weights<T>(s), staged(kV));
    }
    const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
    scale_rows(values, inverse);
    if (lane_of_thread() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(h) < tile.num_rows) memory.leaf_log_sum[sight.row(h)] = softmax.log_sum(h);
      }
    }
    __syncwarp();
    if (!is_wide) this->fold_leaves(tile);
    __syncwarp();
  }
  __device__ static void scale_rows(float (&values)[8][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] *= factor[i / 2];
    }
  }

  // Inner nodes attend inside their families; a(C) takes the place of q.
  __device__ void attend_places(const GroveTile& tile) const {
    const RowSight sight = view.place_sight(tile);
    float s[2][4] = {}, factor[2], offset[2][2];
    view.log_sizes(tile, offset);
    add_scores<T, true>(s, memory.tile(kQ, tile.row), memory.tile(kK, tile.row));
    TileSoftmax softmax;
    softmax.add(sight, tile.row, offset, view.call.scale, s, factor);
    const Weights weights = split_weights<T>(s);
    this->set_gates(tile, softmax);
    this->fold_places(tile);
    __syncwarp();
    // a quarter of the channels at a time: registers hold the leaves' results
#pragma unroll
    for (int first = 0; first < 8; first += 2) {
      float values[2][4] = {};
      add_product<T, true>(values, weights, memory.tile(kV, tile.row), first);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(h) >= tile.num_rows) continue;
        const float inverse = softmax.inverse(h);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          *reinterpret_cast<float2*>(memory.floats(kQ, sight.row(h), column_of(first + n, 0))) =
              make_float2(inverse * values[n][2 * h], inverse * values[n][2 * h + 1]);
        }
      }
    }
  }

  // y(C) takes the place of a(C).
  __device__ void descend_places(const GroveTile& tile) const {
    const int channel = 2 * lane_of_thread();
    for (int p = tile.row; p < tile.row + tile.num_rows; ++p) {
      const GrovePlace place = view.place(p);
      const int above = view.family(place.family).place;
      auto* own = reinterpret_cast<float2*>(memory.floats(kQ, p, channel));
      float2 y = make_float2(0, 0);
      float mass = 1;
      if (above >= 0) {
        y = *reinterpret_cast<const float2*>(memory.floats(kQ, above, channel));
        mass = memory.number(kMass, above);
      }
      const float weight = mass * memory.number(kGiven, p);
      y.x += weight * own->x, y.y += weight * own->y;
      *own = y;
      if (lane_of_thread() == 0) memory.number(kMass, p) = mass * memory.number(kKept, p);
      if (place.leaf_row < 0) continue;
      const Rows& rows = view.call.out;
      T* to = static_cast<T*>(rows.data) + this->leaf(place.leaf_row) * rows.row_stride + view.head * rows.head_stride;
      reinterpret_cast<uint32_t*>(to)[lane_of_thread()] = pack2<T>(y.x, y.y);
    }
  }

  __device__ void finish_leaves_of(const GroveTile& tile, float (&values)[8][4]) const {
    const RowSight sight = view.leaf_sight(tile.row, tile.num_rows);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int above = sight.family[h] < 0 ? -1 : view.family(sight.family[h]).place;
      if (above < 0) continue;
      const float mass = memory.number(kMass, above);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 y = *reinterpret_cast<const float2*>(memory.floats(kQ, above, column_of(n, 0)));
        values[n][2 * h] = y.x + mass * values[n][2 * h];
        values[n][2 * h + 1] = y.y + mass * values[n][2 * h + 1];
      }
    }
    store_tile<T>(view.call.out, this->leaf(tile.row), tile.num_rows, view.head, staged(kQ).high, values);
  }

  __device__ void run() const {
    const BlockGrove& grove = view.grove;
    float values[kTilesOfWarp][8][4] = {};
    // the first rows come while places are made ready
    if (warp_of_thread() < grove.num_leaf_tiles) this->load_leaves(view.tile(warp_of_thread()));
    if (grove.num_places > 0) this->prepare_places();
#pragma unroll
    for (int i = 0; i < kTilesOfWarp; ++i) {
      const int t = warp_of_thread() + i * kWarps;
      if (t >= grove.num_leaf_tiles) continue;
      const GroveTile tile = view.tile(t);
      if (i > 0) this->load_leaves(tile);
      attend_leaves(tile, values[i]);
    }
    __syncthreads();
    if (grove.has_wide) {
      this->fold_wide_leaves();
      __syncthreads();
    }
    for (int r = 0; r < grove.num_rounds; ++r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int t = round.tile_begin + warp_of_thread(); t < round.tile_end; t += kWarps) attend_places(view.tile(t));
      __syncthreads();
    }
    for (int r = grove.num_rounds - 1; r >= 0; --r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int t = round.tile_begin + warp_of_thread(); t < round.tile_end; t += kWarps) descend_places(view.tile(t));
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kTilesOfWarp; ++i) {
      const int t = warp_of_thread() + i * kWarps;
      if (t < grove.num_leaf_tiles) finish_leaves_of(view.tile(t), values[i]);
    }
  }
};

template <class T, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 16 / kWarps)
    grove_forward_kernel(const __grid_constant__ Call call, int most_places, int most_rows) {
  const HeadItem item = head_item(call);
  ForwardGrove<T, kWarps>(call, share_grove(call, item.item), item.head, most_places, most_rows).run();
}

// out = y(G) + pi(G) · out below the roots G of groves: a block a root and head, eight lanes a row.
template <class T>
__global__ void __launch_bounds__(256) finish_kernel(const __grid_constant__ Call call) {
  const HeadItem item = head_item(call);
  const GroveRoot root = call.grove_roots[item.item];
  const int64_t row = root.slot * call.heads + item.head;
  const float mass = call.mass[row];
  const int chunk = static_cast<int>(threadIdx.x) % 8;
  float y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = call.y[row * kChannels + 8 * chunk + i];
#pragma unroll 4
  for (int64_t i = threadIdx.x / 8; i < root.num_leaves; i += blockDim.x / 8) {
    auto* out = reinterpret_cast<uint4*>(static_cast<T*>(call.out.data) + (root.leaf_begin + i) * call.out.row_stride +
                                         item.head * call.out.head_stride + 8 * chunk);
    uint4 packed = *out;
    uint32_t* words = &packed.x;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 x = unpack2<T>(words[w]);
      words[w] = pack2<T>(y[2 * w] + mass * x.x, y[2 * w + 1] + mass * x.y);
    }
    *out = packed;
  }
}

// Backward.

// grad_q, grad_k and grad_v of a node's mean, from shared or global memory; none above the root of a tree.
struct GradientAbove {
  const float *low, *high;  // channels [0, 32) and the rest
  float part;

  __device__ void share(float (&c)[8][4], int h) const {
    if (!low) return;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int channel = column_of(n, 0);
      const float2 x = *reinterpret_cast<const float2*>(channel < 32 ? low + channel : high + channel - 32);
      c[n][2 * h] += part * x.x, c[n][2 * h + 1] += part * x.y;
    }
  }
};

// What a family gets from above.
struct FamilyAbove {
  float mass = 1, grad_energy = 0;
};

template <class T, int kWarps, bool kSumsOnly>
struct BackwardGrove : GroveWalk<T, kWarps, 4> {
  using Base = GroveWalk<T, kWarps, 4>;
  using Base::Base, Base::view, Base::memory, Base::staged, Base::load;

  // Log-sums of leaves again, and what their siblings give them: grad_out · a(C).
  __device__ void weigh_leaves(const GroveTile& tile) const {
    const bool is_wide = tile.num_keys > kRows;
    const RowSight sight = view.leaf_sight(tile.row, tile.num_rows);
    const float offset[2][2] = {};
    TileSoftmax softmax;
    float gain[2] = {0, 0};
    for (int first = 0; first < tile.num_keys; first += kRows) {
      if (is_wide) {
        __syncwarp();
        load(kK, tile.key + first, tile.num_keys - first), load(kV, tile.key + first, tile.num_keys - first);
      }
      wait_for_tiles();
      float s[2][4] = {}, grad_p[2][4] = {}, factor[2];
      add_scores<T, false>(s, staged(kQ), staged(kK));
      add_scores<T, false>(grad_p, staged(kGradY), staged(kV));
      softmax.add(sight, tile.key + first, offset, view.call.scale, s, factor);
#pragma unroll
      for (int h = 0; h < 2; ++h) gain[h] = gain[h] * factor[h] + row_dot(s, grad_p, h);
    }
    if (lane_of_thread() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(h) >= tile.num_rows) continue;
        memory.leaf_log_sum[sight.row(h)] = softmax.log_sum(h);
        memory.leaf_gain[sight.row(h)] = gain[h] * softmax.inverse(h);
      }
    }
    __syncwarp();
    if (!is_wide) this->fold_leaves(tile);
    __syncwarp();
  }
  // over the entries with weight: others may be NaN
  __device__ static float row_dot(const float (&p)[2][4], const float (&x)[2][4], int h) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) sum += p[n][2 * h + j] == 0 ? 0.0f : p[n][2 * h + j] * x[n][2 * h + j];
    }
    return row_sum(sum);
  }

  __device__ void weigh_places(const GroveTile& tile) const {
    const RowSight sight = view.place_sight(tile);
    float s[2][4] = {}, grad_p[2][4] = {}, factor[2], offset[2][2];
    view.log_sizes(tile, offset);
    add_scores<T, true>(s, memory.tile(kQ, tile.row), memory.tile(kK, tile.row));
    add_scores<T, true>(grad_p, memory.tile(kGradY, tile.row), memory.tile(kV, tile.row));
    TileSoftmax softmax;
    softmax.add(sight, tile.row, offset, view.call.scale, s, factor);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float gain = row_dot(s, grad_p, h) * softmax.inverse(h);
      if (lane_of_thread() % 4 == 0 && row_of(h) < tile.num_rows) {
        memory.number(kGain, sight.row(h)) = gain * static_cast<float>(view.place(sight.row(h)).size);
      }
    }
    this->set_gates(tile, softmax);
    this->fold_places(tile);
    __syncwarp();
  }

  __device__ FamilyAbove above(const GroveFamily& family) const {
    const Call& call = view.call;
    FamilyAbove result;
    if (family.place >= 0) {
      result.mass = memory.number(kMass, family.place);
      result.grad_energy = memory.number(kGradEnergy, family.place);
    } else if (view.is_tree(family)) {
      result.grad_energy = call.grad_root_energy[family.tree_root * call.heads + view.head];
    } else {
      result.mass = call.mass[view.slot_row(family)], result.grad_energy = call.grad_energy[view.slot_row(family)];
    }
    return result;
  }
  // Where the gradient of a place's mean lies, once its own tile is done.
  __device__ static PlaceArray gradient_of(PlaceArray array) {
    return array == kK ? kGradY : array;
  }
  __device__ GradientAbove gradient_above(const GroveFamily& family, PlaceArray array, float part) const {
    if (family.place >= 0) {
      const PlaceArray gradient = gradient_of(array);
      return {memory.floats(gradient, family.place, 0), memory.floats(gradient, family.place, 32), part};
    }
    if (view.is_tree(family)) return {nullptr, nullptr, part};
    const Call& call = view.call;
    const float* rows = array == kQ ? call.grad_mean_q : array == kK ? call.grad_mean_k : call.grad_mean_v;
    rows += view.slot_row(family) * kChannels;
    return {rows, rows + 32, part};
  }

  // What a thread's two rows look with: the gradient of a score is p · (pull + reach · grad_out · v).
  struct Looking {
    float log_sum[2], pull[2], reach[2];
  };
  // Scores become their gradients times scale, grad_p becomes p · reach, for the gradient of v.
  __device__ void differentiate(const RowSight& sight, int first_key, const float (&offset)[2][2],
                                const Looking& looking, float (&s)[2][4], float (&grad_p)[2][4]) const {
    const float scale = view.call.scale;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float &x = s[n][2 * h + j], &y = grad_p[n][2 * h + j];
          const bool is_seen = sight.sees(h, first_key + column_of(n, j));
          const float p = is_seen ? __expf(scale * x + offset[n][j] - looking.log_sum[h]) : 0.0f;
          x = is_seen ? scale * p * (looking.pull[h] + looking.reach[h] * y) : 0.0f;
          y = p * looking.reach[h];
        }
      }
    }
  }

  // Gradients of the means of a tile's places take the places of the means; those of leaves go to the tensors.
  __device__ void differentiate_places(const GroveTile& tile) const {
    const RowSight sight = view.place_sight(tile);
    Looking looking = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      const int p = sight.row(h);
      const GrovePlace place = view.place(p);
      const GroveFamily family = view.family(place.family);
      const FamilyAbove from = above(family);
      const float grad_total = static_cast<float>(place.size) / static_cast<float>(family.size) * from.grad_energy;
      const float kept = memory.number(kKept, p), given = memory.number(kGiven, p), gain = memory.number(kGain, p);
      const float delta = from.mass * kept * given * (memory.number(kInnerGain, p) - gain);
      looking.log_sum[h] = memory.number(kLogSum, p);
      looking.pull[h] = given * grad_total - delta - from.mass * given * gain;
      looking.reach[h] = from.mass * given * static_cast<float>(place.size);  // rows hold means of grad_out
      if (lane_of_thread() % 4 == 0) {
        memory.number(kGradEnergy, p) = delta + kept * grad_total;
        memory.number(kMass, p) = from.mass * kept;
      }
    }
    float s[2][4] = {}, grad_p[2][4] = {}, offset[2][2];
    view.log_sizes(tile, offset);
    add_scores<T, true>(s, memory.tile(kQ, tile.row), memory.tile(kK, tile.row));
    add_scores<T, true>(grad_p, memory.tile(kGradY, tile.row), memory.tile(kV, tile.row));
    differentiate(sight, tile.row, offset, looking, s, grad_p);
    // one at a time, each over what is no longer needed
    differentiate_array<true>(tile, sight, kV, grad_p, kGradY);
    differentiate_array<true>(tile, sight, kK, s, kQ);
    differentiate_array<false>(tile, sight, kQ, s, kK);
    __syncwarp();
    for (int p = tile.row; p < tile.row + tile.num_rows; ++p) {
      const int row = view.place(p).leaf_row;
      if (row < 0) continue;
      write_leaf(view.call.grad_q, kQ, p, row), write_leaf(view.call.grad_k, kK, p, row);
      write_leaf(view.call.grad_v, kV, p, row);
    }
  }
  template <bool kTranspose>
  __device__ void differentiate_array(const GroveTile& tile, const RowSight& sight, PlaceArray array,
                                      const float (&weights)[2][4], PlaceArray with) const {
    float c[8][4] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (sight.family[h] >= 0) share_above(sight.family[h], view.place(sight.row(h)).size, array, c, h);
    }
    add_gradient<T, true, kTranspose>(c, weights, memory.tile(with, tile.row));
    __syncwarp();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        *reinterpret_cast<float2*>(memory.floats(gradient_of(array), tile.row + row_of(h), column_of(n, 0))) =
            make_float2(c[n][2 * h], c[n][2 * h + 1]);
      }
    }
  }
  __device__ void write_leaf(const Rows& rows, PlaceArray array, int place, int row) const {
    const float2 x = *reinterpret_cast<const float2*>(memory.floats(gradient_of(array), place, 2 * lane_of_thread()));
    T* to = static_cast<T*>(rows.data) + this->leaf(row) * rows.row_stride + view.head * rows.head_stride;
    reinterpret_cast<uint32_t*>(to)[lane_of_thread()] = pack2<T>(x.x, x.y);
  }

  // Of leaves: e has no gradient, since all of their mass goes to what they see.
  __device__ Looking look_from_leaves(const RowSight& sight) const {
    Looking looking = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (sight.family[h] < 0) continue;
      const GroveFamily family = view.family(sight.family[h]);
      const FamilyAbove from = above(family);
      looking.log_sum[h] = memory.leaf_log_sum[sight.row(h)];
      looking.reach[h] = from.mass;
      looking.pull[h] = from.grad_energy / static_cast<float>(family.size) - from.mass * memory.leaf_gain[sight.row(h)];
    }
    return looking;
  }
  // A child of `size` leaves gets its share of what its family's mean gets.
  __device__ void share_above(int f, int size, PlaceArray array, float (&c)[8][4], int h) const {
    const GroveFamily family = view.family(f);
    gradient_above(family, array, static_cast<float>(size) / static_cast<float>(family.size)).share(c, h);
  }
  __device__ void share_with_leaves(const RowSight& sight, PlaceArray array, float (&c)[8][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (sight.family[h] >= 0) share_above(sight.family[h], 1, array, c, h);
    }
  }

  __device__ void differentiate_leaves(const GroveTile& tile, bool is_staged) const {
    const Call& call = view.call;
    const int64_t leaf = this->leaf(tile.row);
    if (tile.num_keys > kRows) return differentiate_wide(tile);
    if (!is_staged) {
      __syncwarp();
      load(kQ, tile.row, tile.num_rows), load(kK, tile.row, tile.num_rows);
      load(kV, tile.row, tile.num_rows), load(kGradY, tile.row, tile.num_rows);
    }
    const RowSight sight = view.leaf_sight(tile.row, tile.num_rows);
    const float offset[2][2] = {};
    const Looking looking = look_from_leaves(sight);
    wait_for_tiles();
    float s[2][4] = {}, grad_p[2][4] = {};
    add_scores<T, false>(s, staged(kQ), staged(kK));
    add_scores<T, false>(grad_p, staged(kGradY), staged(kV));
    differentiate(sight, tile.row, offset, looking, s, grad_p);
    // v is no longer needed: results go through its tile
    {
      float c[8][4] = {};
      share_with_leaves(sight, kV, c);
      add_gradient<T, false, true>(c, grad_p, staged(kGradY));
      store_tile<T>(call.grad_v, leaf, tile.num_rows, view.head, staged(kV).high, c);
    }
    {
      float c[8][4] = {};
      share_with_leaves(sight, kQ, c);
      add_gradient<T, false, false>(c, s, staged(kK));
      store_tile<T>(call.grad_q, leaf, tile.num_rows, view.head, staged(kV).high, c);
    }
    {
      float c[8][4] = {};
      share_with_leaves(sight, kK, c);
      add_gradient<T, false, true>(c, s, staged(kQ));
      store_tile<T>(call.grad_k, leaf, tile.num_rows, view.head, staged(kV).high, c);
    }
  }

  // A tile of a family of several: its rows look at all tiles of keys, then all tiles of rows look at its keys.
  __device__ void differentiate_wide(const GroveTile& tile) const {
    const Call& call = view.call;
    const int64_t leaf = this->leaf(tile.row);
    const float offset[2][2] = {};
    const RowSight sight = view.leaf_sight(tile.row, tile.num_rows);
    const Looking looking = look_from_leaves(sight);
    __syncwarp();
    load(kQ, tile.row, tile.num_rows), load(kGradY, tile.row, tile.num_rows);
    float c[8][4] = {};
    share_with_leaves(sight, kQ, c);
    for (int first = 0; first < tile.num_keys; first += kRows) {
      __syncwarp();
      load(kK, tile.key + first, tile.num_keys - first), load(kV, tile.key + first, tile.num_keys - first);
      wait_for_tiles();
      float s[2][4] = {}, grad_p[2][4] = {};
      add_scores<T, false>(s, staged(kQ), staged(kK));
      add_scores<T, false>(grad_p, staged(kGradY), staged(kV));
      differentiate(sight, tile.key + first, offset, looking, s, grad_p);
      add_gradient<T, false, false>(c, s, staged(kK));
    }
    store_tile<T>(call.grad_q, leaf, tile.num_rows, view.head, staged(kQ).high, c);
    __syncwarp();
    load(kK, tile.row, tile.num_rows), load(kV, tile.row, tile.num_rows);
    differentiate_wide_keys<kK>(tile, sight, call.grad_k);
    differentiate_wide_keys<kV>(tile, sight, call.grad_v);
  }
  template <PlaceArray kArray>
  __device__ void differentiate_wide_keys(const GroveTile& tile, const RowSight& sight, const Rows& rows) const {
    const float offset[2][2] = {};
    float c[8][4] = {};
    share_with_leaves(sight, kArray, c);
    for (int first = 0; first < tile.num_keys; first += kRows) {
      __syncwarp();
      load(kQ, tile.key + first, tile.num_keys - first), load(kGradY, tile.key + first, tile.num_keys - first);
      const RowSight its_sight = view.leaf_sight(tile.key + first, min(kRows, tile.num_keys - first));
      const Looking its = look_from_leaves(its_sight);
      wait_for_tiles();
      float s[2][4] = {}, grad_p[2][4] = {};
      add_scores<T, false>(s, staged(kQ), staged(kK));
      add_scores<T, false>(grad_p, staged(kGradY), staged(kV));
      differentiate(its_sight, tile.row, offset, its, s, grad_p);
      add_gradient<T, false, true>(c, kArray == kK ? s : grad_p, staged(kArray == kK ? kQ : kGradY));
    }
    store_tile<T>(rows, this->leaf(tile.row), tile.num_rows, view.head, staged(kQ).high, c);
  }

  __device__ void run() const {
    const BlockGrove& grove = view.grove;
    if (warp_of_thread() < grove.num_leaf_tiles) this->load_leaves(view.tile(warp_of_thread()));
    if (grove.num_places > 0) this->prepare_places();
    for (int t = warp_of_thread(); t < grove.num_leaf_tiles; t += kWarps) {
      const GroveTile tile = view.tile(t);
      if (t >= kWarps) this->load_leaves(tile);
      weigh_leaves(tile);
    }
    __syncthreads();
    if (grove.has_wide) {
      this->fold_wide_leaves();
      __syncthreads();
    }
    for (int r = 0; r < grove.num_rounds; ++r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int t = round.tile_begin + warp_of_thread(); t < round.tile_end; t += kWarps) weigh_places(view.tile(t));
      __syncthreads();
    }
    if constexpr (!kSumsOnly) differentiate_all();
  }

  __device__ void differentiate_all() const {
    const BlockGrove& grove = view.grove;
    for (int r = grove.num_rounds - 1; r >= 0; --r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int t = round.tile_begin + warp_of_thread(); t < round.tile_end; t += kWarps) {
        differentiate_places(view.tile(t));
      }
      __syncthreads();
    }
    const bool is_staged = grove.num_leaf_tiles <= kWarps;  // the only tile of this warp is still there
    for (int t = warp_of_thread(); t < grove.num_leaf_tiles; t += kWarps) differentiate_leaves(view.tile(t), is_staged);
  }
};

template <class T, int kWarps, bool kSumsOnly>
__global__ void __launch_bounds__(kWarps * 32, 16 / kWarps)
    grove_backward_kernel(const __grid_constant__ Call call, int most_places, int most_rows) {
  const HeadItem item = head_item(call);
  const BlockGrove& grove = share_grove(call, item.item);
  if (kSumsOnly && grove.is_whole) return;
  BackwardGrove<T, kWarps, kSumsOnly>(call, grove, item.head, most_places, most_rows).run();
}

struct Launch {
  dim3 grid;
  int most_places, most_rows;
};
Launch launch_of(const Call& call, const AttentionParams& params) {
  const BlockTotals& totals = params.walk.totals;
  return {dim3(static_cast<unsigned>(params.walk.groves.size() * call.heads)), static_cast<int>(totals.grove_places),
          static_cast<int>(totals.grove_tiles * kTileRows + totals.grove_places)};
}

template <class Function>
void dispatch_groves(const AttentionParams& params, const Function& function) {
  if (params.walk.groves.empty()) return;
  const auto with_warps = [&]<class T>() {
    params.walk.totals.grove_tiles <= kSmallGroves.tiles ? function.template operator()<T, 8>()
                                                         : function.template operator()<T, 16>();
  };
  params.storage == Storage::bfloat16 ? with_warps.template operator()<__nv_bfloat16>()
                                      : with_warps.template operator()<__half>();
}

template <bool kSumsOnly>
void launch_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const Launch how = launch_of(call, params);
  const auto size_for = [&](int warps) { return Memory::size(4, warps, how.most_places, how.most_rows); };
  const auto run = [&]<class T, int kWarps>() {
    launch(grove_backward_kernel<T, kWarps, kSumsOnly>, how.grid, kWarps * 32, size_for(kWarps), stream, call,
           how.most_places, how.most_rows);
  };
  dispatch_groves(params, [&]<class T, int kWarps>() {
    // large groves: with fewer warps where shared memory is smaller (sm_80)
    size_for(kWarps) <= most_shared_memory() ? run.template operator()<T, kWarps>() : run.template operator()<T, 8>();
  });
}

}  // namespace

void groves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const Launch how = launch_of(call, params);
  dispatch_groves(params, [&]<class T, int kWarps>() {
    static_assert(kWarps * kTilesOfWarp == (kWarps == 8 ? kSmallGroves : kLargeGroves).tiles);
    launch(grove_forward_kernel<T, kWarps>, how.grid, kWarps * 32,
           Memory::size(3, kWarps, how.most_places, how.most_rows), stream, call, how.most_places, how.most_rows);
  });
}

void groves_finish(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(params.walk.grove_roots.size() * call.heads));
  dispatch_groves(params, [&]<class T, int>() { launch(finish_kernel<T>, grid, 256, 0, stream, call); });
}

void groves_sums(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  if (!params.walk.grove_roots.empty()) launch_backward<true>(call, params, stream);
}

void groves_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  launch_backward<false>(call, params, stream);
}

}  // namespace ramify::cuda
