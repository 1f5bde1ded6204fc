// Tied queries in groves, forward: leaves, 64 channels of a half type, a warp for a tile of 16 leaves and a head. Tiles
// are independent of each other but for those of a family wider than a tile, which look at each other's keys. Twigs
// that share a tile are kept apart by masks (docs/algorithm.md, section 2; docs/kernels.md).
//
// Means and energies of families and twigs go to their places.
#pragma once

#include "kernels/cuda/grove_means.cuh"
#include "kernels/cuda/twig.cuh"

namespace ramify::cuda {

// What becomes of a(leaf): it leaves for `value`, or stays in the tile of q until the block finishes it.
enum class Values { leave, stay };

// The warp has no tile after this one, and waits for all of this one at once. Else `release` is told what of the tile
// is no longer needed.
struct NothingNext {
  __device__ void wait_for_keys() const { wait_for_all(); }
  __device__ void wait_for_values() const {}
  __device__ void wait_for_all() const { wait_for_tiles(); }
  __device__ void release(PlaceArray) const {}
};

template <class T, Values kValues>
struct ForwardLeaves {
  GroveView view;
  using Tiles = std::conditional_t<kValues == Values::stay, TilesApart, TilesInARow<false>>;
  Tiles tiles;       // of this warp
  uint32_t scratch;  // 16 numbers

  using Means = FamilyMeans<T, false, GroveView, Tiles>;
  __device__ Means means() const { return {view, view, tiles}; }

  // Of neighbouring warps, where values leave
  static constexpr int kStagedTiles = 3;
  __device__ Tile staged(int array, int tiles_away = 0) const {
    return {tiles[array].high + tiles_away * kStagedTiles * kTileBytes};
  }
  __device__ void load(PlaceArray array, const GroveTile& tile) const {
    const Call& call = view.call;
    const Rows& from = array == kQ ? call.q : array == kK ? call.k : call.v;
    load_tile<T>(staged(array).high, from, view.leaf(tile.row), tile.num_rows, view.head);
  }
  __device__ void load(const GroveTile& tile) const { load(kQ, tile), load(kK, tile), load(kV, tile); }
  __device__ float& number_of_row(int row) const { return shared_at<float>(scratch + 4 * row); }

  // What a leaf is given, with include_self also by itself, through the tile of q, which is no longer needed.
  __device__ void store(const TileRows& rows, const float (&values)[8][4]) const {
    const Call& call = view.call;
    store_value(rows.tile, rows.tile.num_rows, values);
    if (kValues == Values::stay || call.value.data == call.out.data || from_lane(rows.family_place, 0) >= 0) return;
    // below the root of a tree that is all; two trees never share a tile
    if (GroveView::is_tree(view.family(rows.first_family()))) store_rows(call.out, rows.tile, values);
  }
  __device__ void store_value(const GroveTile& tile, int count, const float (&values)[8][4]) const {
    const Rows& to = view.call.value;
    put_tile<T>(staged(kQ).high, values);
    if (kValues == Values::stay && to.data == view.call.out.data) return;  // no backward pass will come
    write_tile<T>(to, view.leaf(tile.row), count, view.head, staged(kQ).high);
  }
  __device__ void store_rows(const Rows& to, const GroveTile& tile, const float (&values)[8][4]) const {
    store_tile<T>(to, view.leaf(tile.row), tile.num_rows, view.head, staged(kQ).high, values);
  }

  // The families of a tile, none of them wider than it.
  template <class Next>
  __device__ void attend(const TileRows& rows, const Next& next) const {
    const bool is_one = !view.call.is_causal && from_lane(rows.family_place, 0) >= 0 && rows.is_one_family_of_16();
    is_one ? attend_family<true>(rows, next) : attend_twigs(rows, next);
  }
  // One that all of a tile's rows are, below others, and not causal. kFull: there are 16.
  template <bool kFull, class Next>
  __device__ void attend_family(const TileRows& rows, const Next& next) const {
    const int64_t row = view.place_row(from_lane(rows.family_place, 0));
    const int num_rows = kFull ? kRows : rows.tile.num_rows;
    const float inverse = kFull ? 1.0f / kRows : fast_inverse(static_cast<float>(num_rows));
    next.wait_for_keys();
    means().fold_one(row, inverse, kQ, kValues == Values::stay ? kV : kGradY);
    float s[2][4] = {};
    add_scores<T, false>(s, staged(kQ), staged(kK));
    next.release(kK);
    TileSoftmax softmax;
    softmax.take(FamilySight{{view.call.include_self}, num_rows}, view.call.scale, s);
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i / 4][i % 4] *= softmax.inverse(i % 4 / 2);
    if constexpr (kValues == Values::stay) {
      next.wait_for_values();
      means().fold_one(row, inverse, kV, kGradY);
    }
    float values[8][4] = {};
    add_product<T, false>(values, split_weights<T>(s), staged(kV));
    next.release(kV);
    store_value(rows.tile, num_rows, values);
    float sum = (row_of(0) < num_rows ? softmax.log_sum(0) : 0.0f) + (row_of(1) < num_rows ? softmax.log_sum(1) : 0.0f);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane_of_thread() == 0) view.call.place_energy[row] = inverse * sum;
  }
  template <class Next>
  __device__ void attend_twigs(const TileRows& rows, const Next& next) const {
    const TwigSight<true> sight(view, rows);
    next.wait_for_all();
    means().fold(rows);
    float s[2][4] = {}, total[2], values[8][4] = {};
    add_scores<T, false>(s, staged(kQ), staged(kK));
    next.release(kK);
    weigh_twigs(sight, rows.tile.num_levels, view.call.scale, s, total);
    add_product<T, false>(values, split_weights<T>(s), staged(kV));
    next.release(kV);
    store(rows, values);
    if (lane_of_thread() % 4 == 0) number_of_row(row_of(0)) = total[0], number_of_row(row_of(1)) = total[1];
    __syncwarp();
    means().fold_energies(rows, number_of_row(lane_of_thread() % kRows));
  }

  // Families of several tiles: the warp of each has its rows and looks at the keys of all. Every warp of the block
  // comes here.
  __device__ void attend_wide(const TileRows& rows, bool is_wide) const {
    const GroveTile& tile = rows.tile;
    const int first = (tile.key - tile.row) / kRows, num_tiles = (tile.num_keys + kRows - 1) / kRows;
    float values[8][4];
    wait_for_tiles();
    __syncthreads();
    if (is_wide) {
      for (int a = -first; a < 3; a += num_tiles) fold_wide(rows, a, first, num_tiles);
      const RowSight sight(tile, view.call);
      TileSoftmax softmax;
#pragma unroll
      for (int i = 0; i < 32; ++i) values[i / 4][i % 4] = 0;
      for (int t = 0; t < num_tiles; ++t) {
        float s[2][4] = {}, factor[2];
        add_scores<T, false>(s, staged(kQ), staged(kK, first + t));
        softmax.add(sight, tile.key + t * kRows, view.call.scale, s, factor);
        scale_rows(values, factor);
        add_product<T, false>(values, split_weights<T>(s), staged(kV, first + t));
      }
      const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
      scale_rows(values, inverse);
      if (lane_of_thread() % 4 == 0) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          number_of_row(row_of(h)) = softmax.log_sum(h);
          if (row_of(h) >= tile.num_rows) continue;
          view.call.leaf_log_sum[view.leaf_row(tile.row + row_of(h))] = softmax.parts(h);
        }
      }
    }
    __syncthreads();  // nobody looks at what is staged any more
    if (!is_wide) return;
    store(rows, values);
    if (view.call.value_rest.data) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float &x = values[i / 2][i % 2 * 2], &y = values[i / 2][i % 2 * 2 + 1];
        const float2 taken = unpack2<T>(pack2<T>(x, y));
        x -= taken.x, y -= taken.y;
      }
      store_rows(view.call.value_rest, tile, values);
    }
    if (first != 0) return;
    float sum = 0;
    for (int row = lane_of_thread(); row < tile.num_keys; row += 32) sum += number_of_row(row);
    sum = warp_sum(sum) * fast_inverse(static_cast<float>(tile.num_keys));
    if (lane_of_thread() == 0) means().deliver_energy(rows.family, rows.family_place, sum);
  }
  // The mean of one array over such a family.
  __device__ void fold_wide(const TileRows& rows, int array, int first, int num_tiles) const {
    float2 total = make_float2(0, 0);
    for (int t = 0; t < num_tiles; ++t) {
      float2 sum[1];
      Means::sum_rows(Means::ones(), staged(array, first + t), sum);
      total.x += sum[0].x, total.y += sum[0].y;
    }
    means().put_mean(array, rows.first_family(), from_lane(rows.family_place, 0),
                     fast_inverse(static_cast<float>(rows.tile.num_keys)), total);
  }
  __device__ static void scale_rows(float (&values)[8][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] *= factor[i / 2];
    }
  }
};

}  // namespace ramify::cuda
