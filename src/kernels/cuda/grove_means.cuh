// Means and energies of the families of a tile, on their way up.
#pragma once

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

// Where the tiles of q, k and v are: one behind the other, or each for itself.
template <bool kSplit>
struct TilesInARow {
  uint32_t q;

  __device__ Tile operator[](int array) const {
    const uint32_t high = q + (kSplit ? 2 : 1) * array * kTileBytes;
    return {high, high + kTileBytes};
  }
};
struct TilesApart {
  uint32_t q, k, v;

  __device__ Tile operator[](int array) const { return {array == kQ ? q : array == kK ? k : v}; }
};

// Sums of rows are products with a matrix of ones, or of sizes. `Tables` tells of the families: those of leaves and
// those of places differ in where that is. Rows of places are split.
template <class T, bool kSplit, class Tables, class Tiles>
struct FamilyMeans {
  const GroveView& view;
  const Tables& tables;
  Tiles tiles;

  // Where the mean of an array goes: to a place, or to a root of the grove; nowhere for a tree.
  struct Target {
    uint32_t* place = nullptr;
    float* slot = nullptr;
  };
  __device__ Target target_of(int array, int f, int place) const {
    const Call& call = view.call;
    if (place >= 0) return {call.place_mean + (3 * view.place_row(place) + array) * kChannels, nullptr};
    const GroveFamily family = tables.family(f);
    if (GroveView::is_tree(family)) return {};
    float* means = array == kQ ? call.mean_q : array == kK ? call.mean_k : call.mean_v;
    return {nullptr, means + view.slot_row(family) * kChannels};
  }
  // Channels 2 · pair and 2 · pair + 1 of a mean.
  __device__ static void put(const Target& target, int pair, float2 x) {
    if (target.slot) reinterpret_cast<float2*>(target.slot)[pair] = x;
    if (!target.place) return;
    const uint32_t high = pack2<T>(x.x, x.y);
    target.place[pair] = high, target.place[pair + kChannels / 2] = rest_of<T>(x.x, x.y, high);
  }

  // Of two chunks of a tile.
  __device__ static void add_rows(const uint32_t (&high)[4], const uint32_t (&low)[4], uint32_t at, uint32_t to_low,
                                  float (&c)[2][4]) {
    uint32_t b[4];
    load_matrices<true>(b, at);
    multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
    if constexpr (kSplit) {
      multiply_add<T>(c[0], low, b[0], b[1]), multiply_add<T>(c[1], low, b[2], b[3]);
      load_matrices<true>(b, at + to_low);
      multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
    }
  }
  // A matrix of sizes as the left side of a product: its rows h are all those of family h, of one or two.
  struct Sizes {
    uint32_t high[4], low[4];
  };
  template <int kFamilies>
  __device__ static Sizes sizes_of(const float (&size)[kFamilies][2][2]) {
    Sizes result;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& its = size[i % kFamilies][i / 2];
      result.high[i] = pack2<T>(its[0], its[1]);
      result.low[i] = rest_of<T>(its[0], its[1], result.high[i]);
    }
    return result;
  }
  __device__ static Sizes ones() {
    const float size[1][2][2] = {{{1, 1}, {1, 1}}};
    return sizes_of(size);
  }
  // Their sums of one array, of which lane l takes channels 2 · l and 2 · l + 1.
  template <int kFamilies>
  __device__ static void sum_rows(const Sizes& size, const Tile& tile, float2 (&sum)[kFamilies]) {
    const uint32_t at = left_cell(tile.high);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      float c[2][4] = {};
      add_rows(size.high, size.low, at ^ (n << 4), tile.low - tile.high, c);
#pragma unroll
      for (int h = 0; h < kFamilies; ++h) {
        if (lane_of_thread() / 4 == n) sum[h] = make_float2(c[0][2 * h], c[0][2 * h + 1]);
        if (lane_of_thread() / 4 == n + 1) sum[h] = make_float2(c[1][2 * h], c[1][2 * h + 1]);
      }
    }
  }
  __device__ void put_mean(int array, int f, int place, float inverse, float2 sum) const {
    const Target target = target_of(array, f, place);
    put(target, lane_of_thread(), make_float2(inverse * sum.x, inverse * sum.y));
  }
  // Sums over all rows of a tile that is not split, of two channels of the lane: 2 · pair and 2 · pair + 1. The tile,
  // transposed, times ones takes half as many products as `sum_rows`.
  struct PairSum {
    int pair;
    float2 sum;
  };
  __device__ static PairSum sum_all_rows(const Tile& tile) {
    const int g = lane_of_thread() / 4, t = lane_of_thread() % 4;
    const uint32_t at = left_cell(tile.high), one = pack2<T>(1, 1);
    float low = 0, high = 0;  // of channels 16 · t + g and 8 behind it
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t b[4];
      load_matrices<true>(b, at ^ (n << 5));
      float c[4] = {};
      const uint32_t transposed[4] = {b[0], b[2], b[1], b[3]};
      multiply_add<T>(c, transposed, one, one);
      if (n == 0 || t == n) low = c[0], high = c[2];
    }
    // neighbours exchange, so that each has two channels in a row
    const bool is_odd = g % 2 == 1;
    const float other = __shfl_xor_sync(0xffffffffu, is_odd ? low : high, 4);
    return {8 * t + g / 2 + (is_odd ? 4 : 0), is_odd ? make_float2(other, high) : make_float2(low, other)};
  }
  // Of arrays [begin, end) in a tile that is one family of leaves, for a row of places.
  __device__ void fold_one(int64_t row, float inverse, int begin, int end) const {
#pragma unroll
    for (int a = begin; a < end; ++a) {
      const PairSum its = sum_all_rows(tiles[a]);
      write_split<T>(view.call.place_mean, 3 * row + a, its.pair,
                     make_float2(inverse * its.sum.x, inverse * its.sum.y));
    }
  }
  // Of arrays [begin, 3), every step-th, in a tile of one family or two.
  __device__ void fold_two(const TileRows& rows, const float (&size)[2][2], int begin, int step) const {
    const int first = rows.first_family(), split = from_lane(rows.end(), 0) - rows.tile.row;  // the second begins there
    const int places[2] = {from_lane(rows.family_place, 0), from_lane(rows.family_place, rows.tile.num_rows - 1)};
    float its_size[2][2][2], inverse[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool is_its = (column_of(i / 2, i % 2) >= split) == (h == 1);
        its_size[h][i / 2][i % 2] = is_its ? size[i / 2][i % 2] : 0.0f;
      }
      const int count = h == 0 ? split : rows.tile.num_rows - split;
      if (count == 0) continue;
      inverse[h] = fast_inverse(static_cast<float>(kSplit ? tables.family(first + h).size : count));
    }
    const Sizes weights = sizes_of(its_size);
#pragma unroll 1
    for (int a = begin; a < 3; a += step) {
      float2 sum[2];
      sum_rows(weights, tiles[a], sum);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (inverse[h] != 0) put_mean(a, first + h, places[h], inverse[h], sum[h]);
      }
    }
  }
  // Of any families in a tile, of which there are at most eight: the product of who belongs to whom with the array.
  __device__ void fold_many(int array, const TileRows& rows, const float (&size)[2][2]) const {
    const int first = rows.first_family(), count = rows.num_families();
    const bool is_there = row_of(0) < count;
    const GroveFamily family = is_there ? tables.family(first + row_of(0)) : GroveFamily();
    const Target target = is_there ? target_of(array, first + row_of(0), family.place) : Target();
    const float inverse = is_there ? fast_inverse(static_cast<float>(family.size)) : 0.0f;
    uint32_t high[4] = {}, low[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      float x[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = rows.tile.row + column_of(i / 2, j);
        x[j] = is_there && row >= family.begin && row < family.end ? size[i / 2][j] : 0.0f;
      }
      high[i] = pack2<T>(x[0], x[1]), low[i] = rest_of<T>(x[0], x[1], high[i]);
    }
    const uint32_t at = left_cell(tiles[array].high);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      float c[2][4] = {};
      add_rows(high, low, at ^ (n << 4), kTileBytes, c);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        put(target, column_of(n + i, 0) / 2, make_float2(inverse * c[i][0], inverse * c[i][1]));
      }
    }
  }
  // All arrays, or from the begin-th on every step-th.
  __device__ void fold(const TileRows& rows, int begin = 0, int step = 1) const {
    float size[2][2];
    sizes(rows, size);
    if (rows.num_families() <= 2) return fold_two(rows, size, begin, step);
#pragma unroll 1
    for (int a = begin; a < 3; a += step) fold_many(a, rows, size);
  }

  // The mean over each family, by sizes, of a number of the lane's row.
  __device__ void fold_energies(const TileRows& rows, float total) const {
    const float sum = rows.family_sums(rows.family >= 0 ? static_cast<float>(rows.size) * total : 0.0f);
    if (!rows.is_first_of_family()) return;
    const int its_size = kSplit ? tables.family(rows.family).size : rows.end() - rows.begin();
    deliver_energy(rows.family, rows.family_place, sum * fast_inverse(static_cast<float>(its_size)));
  }
  __device__ void deliver_energy(int f, int place, float energy) const {
    const Call& call = view.call;
    if (place >= 0) {
      call.place_energy[view.place_row(place)] = energy;
      return;
    }
    const GroveFamily family = tables.family(f);
    if (GroveView::is_tree(family)) {
      call.root_energy[family.tree_root * call.heads + view.head] = energy;
    } else {
      call.energy[view.slot_row(family)] = energy;
    }
  }
};

}  // namespace ramify::cuda
