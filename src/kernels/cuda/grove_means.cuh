// Means and energies of the families of a tile, on their way up.
#pragma once

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

constexpr int kFamiliesAtOnce = 5;  // of which one product gives the means of q, k and v

// Sums of rows are products with a matrix of ones, or of sizes. `Tables` tells of the families: those of leaves and
// those of places differ in where that is. Rows of places are split.
template <class T, bool kSplit, class Tables>
struct FamilyMeans {
  const GroveView& view;
  const Tables& tables;
  Tile tiles[3];  // q, k, v

  // Where the mean of an array goes: to a place, or to a root of the grove; nowhere for a tree.
  struct Target {
    int array = -1;  // -1: nowhere
    int begin = 0, end = 0;
    float inverse = 0;
    uint32_t* place = nullptr;
    float* slot = nullptr;
  };
  __device__ Target target_of(int array, int f, int place) const {
    const Call& call = view.call;
    Target target;
    if (place >= 0) {
      target.place = call.place_mean + (3 * view.place_row(place) + array) * kChannels;
    } else {
      const GroveFamily family = tables.family(f);
      if (GroveView::is_tree(family)) return target;
      float* means = array == kQ ? call.mean_q : array == kK ? call.mean_k : call.mean_v;
      target.slot = means + view.slot_row(family) * kChannels;
    }
    target.array = array;
    return target;
  }
  // Row 3 · f + a of the product is array a of the f-th family from `first` on.
  __device__ Target target_of_row(int row, int first, int last) const {
    const int f = first + row / 3;
    if (row >= 3 * kFamiliesAtOnce || f > last) return {};
    const GroveFamily family = tables.family(f);
    Target target = target_of(row % 3, f, family.place);
    target.begin = family.begin, target.end = family.end;
    target.inverse = fast_inverse(static_cast<float>(family.size));
    return target;
  }
  // Channels 2 · pair and 2 · pair + 1 of a mean.
  __device__ static void put(const Target& target, int pair, float2 x) {
    if (target.slot) reinterpret_cast<float2*>(target.slot)[pair] = x;
    if (!target.place) return;
    const uint32_t high = pack2<T>(x.x, x.y);
    target.place[pair] = high, target.place[pair + kChannels / 2] = rest_of<T>(x.x, x.y, high);
  }

  // The sums over a tile's only family, or over its two, of one array: rows h of the product with the sizes are all the
  // sum of family h, of which lane l takes channels 2 · l and 2 · l + 1.
  template <int kFamilies>
  __device__ static void sum_rows(const float (&size)[kFamilies][2][2], const Tile& tile, float2 (&sum)[kFamilies]) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& its = size[i % kFamilies][i / 2];
      high[i] = pack2<T>(its[0], its[1]);
      low[i] = rest_of<T>(its[0], its[1], high[i]);
    }
    const uint32_t at = left_cell<false>(tile.high, kRows - 1);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      float c[2][4] = {};
      uint32_t b[4];
      load_matrices<true>(b, at ^ (n << 4));
      multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
      if constexpr (kSplit) {
        multiply_add<T>(c[0], low, b[0], b[1]), multiply_add<T>(c[1], low, b[2], b[3]);
        load_matrices<true>(b, (at ^ (n << 4)) + (tile.low - tile.high));
        multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
      }
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
  // Of a tile that is one family of 16 leaves, which has a place.
  __device__ void fold_16(int place) const {
    const float ones[1][2][2] = {{{1, 1}, {1, 1}}};
    const int64_t row = 3 * view.place_row(place);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      float2 sum[1];
      sum_rows(ones, tiles[a], sum);
      write_split<T>(view.call.place_mean, row + a, make_float2(sum[0].x / kRows, sum[0].y / kRows));
    }
  }
  __device__ void fold_two(const TileRows& rows, const float (&size)[2][2]) const {
    const int first = rows.first_family(), ends[2] = {0, rows.tile.num_rows - 1};
    const int split = from_lane(rows.end(), 0) - rows.tile.row;  // where the second begins
    const bool is_there[2] = {true, split < rows.tile.num_rows};
    float its_size[2][2][2], inverse[2];
    int place[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      place[h] = from_lane(rows.family_place, ends[h]);
      const int count = h == 0 ? split : rows.tile.num_rows - split;
      inverse[h] = is_there[h] ? fast_inverse(static_cast<float>(kSplit ? tables.family(first + h).size : count)) : 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool is_its = (column_of(i / 2, i % 2) >= split) == (h == 1);
        its_size[h][i / 2][i % 2] = is_its ? size[i / 2][i % 2] : 0.0f;
      }
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      float2 sum[2];
      sum_rows(its_size, tiles[a], sum);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (is_there[h]) put_mean(a, first + h, place[h], inverse[h], sum[h]);
      }
    }
  }
  // Of any families in a tile: products of who belongs to whom with q, k and v.
  __device__ void fold(const TileRows& rows) const {
    const int first = rows.first_family(), last = first + rows.num_families() - 1;
    float size[2][2];
    sizes(rows, size);
    if (last - first < 2) return fold_two(rows, size);
#pragma unroll 1
    for (int f = first; f <= last; f += kFamiliesAtOnce) {
      const Target target[2] = {target_of_row(row_of(0), f, last), target_of_row(row_of(1), f, last)};
#pragma unroll 1
      for (int n = 0; n < 8; n += 2) {
        float c[2][4] = {};
#pragma unroll
        for (int a = 0; a < 3; ++a) {
          uint32_t high[4], low[4], b[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const Target& to = target[i % 2];
            float x[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              const int row = rows.tile.row + column_of(i / 2, j);
              x[j] = to.array == a && row >= to.begin && row < to.end ? size[i / 2][j] : 0.0f;
            }
            high[i] = pack2<T>(x[0], x[1]), low[i] = rest_of<T>(x[0], x[1], high[i]);
          }
          const uint32_t at = left_cell<false>(tiles[a].high, kRows - 1) ^ (n << 4);
          load_matrices<true>(b, at);
          multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
          if constexpr (kSplit) {
            multiply_add<T>(c[0], low, b[0], b[1]), multiply_add<T>(c[1], low, b[2], b[3]);
            load_matrices<true>(b, at + (tiles[a].low - tiles[a].high));
            multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
          }
        }
        put_rows(target[0], n, c, 0);
        if (last - f >= 2) put_rows(target[1], n, c, 1);  // else all are in the first eight rows
      }
    }
  }
  __device__ static void put_rows(const Target& target, int n, const float (&c)[2][4], int h) {
    if (target.array < 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      put(target, column_of(n + i, 0) / 2, make_float2(target.inverse * c[i][2 * h], target.inverse * c[i][2 * h + 1]));
    }
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
