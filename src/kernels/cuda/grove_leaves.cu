// Tied queries in groves, backward: leaves, each tile for itself, after grove_places.cu (docs/algorithm.md, section 4;
// docs/kernels.md).
#include "kernels/cuda/grove_gradient.cuh"
#include "kernels/cuda/twig.cuh"

namespace ramify::cuda {
namespace {

template <class T, int kWarps, bool kHasWide>
struct BackwardLeaves {
  GroveView view;
  // Of this warp: tiles of q, k, v, grad_out, three rows from above of one family, and of rows of wide families t in
  // two parts and what siblings give.
  uint32_t staging;

  static constexpr int kStagedTiles = 4, kAbove = kStagedTiles * kTileBytes, kNumbers = kAbove + 3 * kChannels * 4;
  static constexpr int kWarpMemory = kNumbers + (kHasWide ? 2 * kRowBytes : 0);
  static constexpr int kMemory = kWarps * kWarpMemory;
  __device__ BackwardLeaves(const Call& call, const BlockGrove& grove, int head)
      : view{call, grove, head}, staging(warp_of_thread() * kWarpMemory) {}

  using Twigs = TwigSight<!kHasWide>;

  __device__ const Rows& tensor(int array) const {
    const Call& call = view.call;
    return array == kQ ? call.q : array == kK ? call.k : array == kV ? call.v : call.grad_out;
  }
  __device__ Tile staged(int array, int tiles_away = 0) const {
    return {staging + tiles_away * kWarpMemory + array * kTileBytes};
  }
  __device__ void load(int array, int row, int count) const {
    load_tile<T>(staged(array).high, tensor(array), view.leaf(row), count, view.head);
  }

  // The family of a thread's row.
  struct RowFamily {
    int family, place, size;
  };
  __device__ static RowFamily family_of_row(const TileRows& rows, int row) {
    return {from_lane(rows.family, row), from_lane(rows.family_place, row), from_lane(rows.end() - rows.begin(), row)};
  }
  __device__ static RowFamily family_of(const TileRows& rows, int h) { return family_of_row(rows, row_of(h)); }
  __device__ FamilyAbove above(const RowFamily& its) const {
    if (its.place < 0) return root_above(view, view.family(its.family));
    return {view.call.place_mass[view.place_row(its.place)], view.call.place_grad_energy[view.place_row(its.place)]};
  }
  // Adds a row's share of what its family's mean got.
  __device__ void share(const RowFamily& its, PlaceArray array, float (&c)[8][4], int h) const {
    if (its.family < 0) return;
    const float* from = its.place >= 0 ? view.call.place_gradient + (3 * view.place_row(its.place) + array) * kChannels
                                       : root_gradient(view, view.family(its.family), array);
    if (!from) return;
    const float part = fast_inverse(static_cast<float>(its.size));
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 x = *reinterpret_cast<const float2*>(from + column_of(n, 0));
      c[n][2 * h] += part * x.x, c[n][2 * h + 1] += part * x.y;
    }
  }
  // Where the rows are of one family or two these are staged: those of one from the beginning, those of two in the tile
  // of v, when that is no longer needed.
  static constexpr int kAboveBytes = 3 * kChannels * 4;
  __device__ void load_above(const TileRows& rows, int row, uint32_t to) const {
    const int f = from_lane(rows.family, row), place = from_lane(rows.family_place, row), lane = lane_of_thread();
    const GroveFamily family = place >= 0 ? GroveFamily() : view.family(f);
#pragma unroll
    for (int i = lane; i < 3 * kRows; i += 32) {
      const auto array = static_cast<PlaceArray>(i / kRows);
      const float* from = place >= 0 ? view.call.place_gradient + (3 * view.place_row(place) + array) * kChannels
                                     : root_gradient(view, family, array);
      from ? copy_async16(to + 16 * i, from + 4 * (i % kRows)) : zero16(to + 16 * i);
    }
  }
  __device__ void load_both_above(const TileRows& rows) const {
    __syncwarp();
    load_above(rows, 0, staged(kV).high);
    load_above(rows, rows.tile.num_rows - 1, staged(kV).high + kAboveBytes);
  }
  __device__ void share_staged(float part, PlaceArray array, float (&c)[8][4]) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 x = shared_at<float2>(staging + kAbove + 4 * (array * kChannels + column_of(n, 0)));
      c[n][0] = c[n][2] = part * x.x, c[n][1] = c[n][3] = part * x.y;
    }
  }
  // Of two families, with the first row of the second.
  __device__ void share_staged(int second, const RowFamily (&its)[2], PlaceArray array, float (&c)[8][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float part = fast_inverse(static_cast<float>(max(its[h].size, 1)));
      const uint32_t from = staged(kV).high + (row_of(h) >= second ? kAboveBytes : 0) + 4 * array * kChannels;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 x = shared_at<float2>(from + 4 * column_of(n, 0));
        c[n][2 * h] = part * x.x, c[n][2 * h + 1] = part * x.y;
      }
    }
  }

  // Scores and grad_out · vᵀ become gradients of scores and weights of grad_out.
  __device__ void differentiate_scores(const TileRows&, const FullSight& sight, const RowFamily (&)[2],
                                       const FamilyAbove (&from)[2], float (&s)[2][4], float (&grad_p)[2][4]) const {
    TileSoftmax softmax;
    softmax.take(sight, view.call.scale, s);
    const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) look(from[h], kRows, gain_of(s, grad_p, h, inverse[h]), looking, h);
    differentiate(looking, inverse, view.call.scale, s, grad_p);
  }
  __device__ void differentiate_scores(const TileRows& rows, const Twigs& sight, const RowFamily (&its)[2],
                                       const FamilyAbove (&from)[2], float (&s)[2][4], float (&grad_p)[2][4]) const {
    const float mass[2] = {from[0].mass, from[1].mass};
    float grad_energy[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      grad_energy[h] = from[h].grad_energy * fast_inverse(static_cast<float>(max(its[h].size, 1)));
    }
    differentiate_twigs(sight, rows.tile.num_levels, view.call.scale, mass, grad_energy, s, grad_p);
  }
  // Of leaves: e has no gradient, since all of their mass goes to what they see.
  __device__ static void look(const FamilyAbove& from, int size, float gain, Looking& looking, int h) {
    looking.reach[h] = from.mass;
    looking.pull[h] = from.grad_energy * fast_inverse(static_cast<float>(size)) - from.mass * gain;
  }

  template <class Sight>
  __device__ void differentiate_tile(const TileRows& rows, const Sight& sight) const {
    const Call& call = view.call;
    const GroveTile& tile = rows.tile;
    const RowFamily its[2] = {family_of(rows, 0), family_of(rows, 1)};
    FamilyAbove from[2];
    if (its[0].family >= 0) from[0] = above(its[0]);
    from[1] = from[0];
    if (!std::is_same_v<Sight, FullSight> && its[1].family >= 0) from[1] = above(its[1]);
    wait_for_tiles();
    float s[2][4] = {}, grad_p[2][4] = {};
    add_scores<T, false>(s, staged(kQ), staged(kK));
    add_scores<T, false>(grad_p, staged(kGradY), staged(kV));
    constexpr bool kIsFull = std::is_same_v<Sight, FullSight>;
    const int num_families = kIsFull ? 1 : rows.num_families();
    if (num_families == 2) load_both_above(rows);
    differentiate_scores(rows, sight, its, from, s, grad_p);
    if (num_families == 2) wait_for_tiles();
    const float part = kIsFull ? 1.0f / kRows : fast_inverse(static_cast<float>(tile.num_rows));
    const int second = from_lane(rows.end(), 0) - tile.row;
    const auto share_with_rows = [&](PlaceArray array, float(&c)[8][4]) {
      if (num_families == 1) return share_staged(part, array, c);
      if (num_families == 2) return share_staged(second, its, array, c);
      share(its[0], array, c, 0), share(its[1], array, c, 1);
    };
    // a result goes through the tile that only it needs
    {
      float c[8][4] = {};
      share_with_rows(kV, c);
      add_gradient<T, false, true>(c, grad_p, staged(kGradY));
      store(call.grad_v, tile, kGradY, c);
    }
    {
      float c[8][4] = {};
      share_with_rows(kQ, c);
      add_gradient<T, false, false>(c, s, staged(kK));
      store(call.grad_q, tile, kK, c);
    }
    {
      float c[8][4] = {};
      share_with_rows(kK, c);
      add_gradient<T, false, true>(c, s, staged(kQ));
      store(call.grad_k, tile, kQ, c);
    }
  }
  __device__ void store(const Rows& rows, const GroveTile& tile, PlaceArray through, const float (&c)[8][4]) const {
    store_tile<T>(rows, view.leaf(tile.row), tile.num_rows, view.head, staged(through).high, c);
  }

  __device__ LogSum& log_sum_of(int row, int tiles_away = 0) const {
    return shared_at<LogSum>(staging + tiles_away * kWarpMemory + kNumbers + 8 * row);
  }
  __device__ float& gain_of_row(int row, int tiles_away = 0) const {
    return shared_at<float>(staging + tiles_away * kWarpMemory + kNumbers + kRowBytes + 4 * row);
  }
  __device__ void load_numbers(const GroveTile& tile) const {
    const int row = lane_of_thread();
    if (row >= tile.num_rows) return;
    log_sum_of(row) = view.call.leaf_log_sum[view.leaf_row(tile.row + row)];
    gain_of_row(row) = view.call.leaf_pull[view.leaf_row(tile.row + row)];  // by grove_sums.cu
  }

  // Of a family of several tiles: weights of a tile of rows for a tile of keys by the saved log-sums, and
  // grad_out · vᵀ. Rows and keys are staged by warps so many tiles away.
  __device__ void weigh(const RowSight& sight, const GroveTile& tile, int rows_away, int first_key, int keys_away,
                        float (&p)[2][4], float (&grad_p)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i / 4][i % 4] = grad_p[i / 4][i % 4] = 0;
    add_scores<T, false>(p, staged(kQ, rows_away), staged(kK, keys_away));
    add_scores<T, false>(grad_p, staged(kGradY, rows_away), staged(kV, keys_away));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool is_row = row_of(h) < tile.num_rows;
      LogSum log_sum = {0, 0};
      if (is_row) log_sum = log_sum_of(row_of(h), rows_away);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = p[i / 2][2 * h + i % 2];
        x = is_row && sight.sees(h, i / 2, i % 2, first_key)
                ? fast_exp2(kLog2E * log_sum.log_weight(view.call.scale * x))
                : 0.0f;
      }
    }
  }
  __device__ Looking wide_looking(const GroveTile& tile, int rows_away, const FamilyAbove& from) const {
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      look(from, tile.num_keys, gain_of_row(row_of(h), rows_away), looking, h);
    }
    return looking;
  }

  // A tile of a family of several: its rows look at all tiles of keys, then all tiles of rows look at its keys, which
  // are all staged, and stay so.
  __device__ void differentiate_wide(const TileRows& rows) const {
    const Call& call = view.call;
    const GroveTile& tile = rows.tile;
    const FamilyAbove from = above(family_of_row(rows, 0));
    const float inverse[2] = {1, 1}, part = fast_inverse(static_cast<float>(tile.num_keys));
    const auto part_of_family = [&](int t) {
      return GroveTile{tile.key + t * kRows, min(kRows, tile.num_keys - t * kRows), tile.key, tile.num_keys};
    };
    const int num_tiles = (tile.num_keys + kRows - 1) / kRows, own = (tile.row - tile.key) / kRows;
    {
      const Looking looking = wide_looking(tile, 0, from);
      const RowSight sight(tile, call);
      float grad_q[8][4];
      share_staged(part, kQ, grad_q);
      for (int t = 0; t < num_tiles; ++t) {
        float s[2][4], grad_p[2][4];
        weigh(sight, tile, 0, tile.key + t * kRows, t - own, s, grad_p);
        differentiate(looking, inverse, call.scale, s, grad_p);
        add_gradient<T, false, false>(grad_q, s, staged(kK, t - own));
      }
      store_directly<T>(call.grad_q, view.leaf(tile.row), tile.num_rows, view.head, grad_q);
    }
    float grad_k[8][4], grad_v[8][4];
    share_staged(part, kK, grad_k), share_staged(part, kV, grad_v);
    for (int t = 0; t < num_tiles; ++t) {
      const GroveTile other = part_of_family(t);
      const Looking looking = wide_looking(other, t - own, from);
      float s[2][4], grad_p[2][4];
      weigh(RowSight(other, call), other, t - own, tile.row, 0, s, grad_p);
      differentiate(looking, inverse, call.scale, s, grad_p);
      add_gradient<T, false, true>(grad_k, s, staged(kQ, t - own));
      add_gradient<T, false, true>(grad_v, grad_p, staged(kGradY, t - own));
    }
    store_directly<T>(call.grad_k, view.leaf(tile.row), tile.num_rows, view.head, grad_k);
    store_directly<T>(call.grad_v, view.leaf(tile.row), tile.num_rows, view.head, grad_v);
  }

  // Every warp of the block comes here, those behind the last tile, too.
  __device__ void run(const WarpTile& own) const {
    TileRows rows;
    if (own.is_there()) rows = view.leaf_rows(own.tile(view.call));
    wait_for_kernels_before();
    if (own.is_there()) {
#pragma unroll
      for (int a = 0; a < kStagedTiles; ++a) load(a, rows.tile.row, rows.tile.num_rows);
      if (rows.num_families() == 1) load_above(rows, 0, staging + kAbove);
      if (kHasWide && rows.tile.num_keys > kRows) load_numbers(rows.tile);
    }
    if (kHasWide && own.block.has_wide) {
      wait_for_tiles();
      __syncthreads();
    }
    if (!own.is_there()) return;
    if (kHasWide && rows.tile.num_keys > kRows) {
      differentiate_wide(rows);
    } else if (!view.call.is_causal && rows.is_one_family_of_16()) {
      differentiate_tile(rows, FullSight{view.call.include_self});
    } else {
      differentiate_tile(rows, Twigs(view, rows));
    }
  }
};

// That share a multiprocessor.
template <int kWarps>
constexpr int kBlocksAtOnce = kWarps == 4   ? 6
                              : kWarps == 8 ? 3
                                            : 1;

template <class T, int kWarps, bool kHasWide>
__global__ void __launch_bounds__(kWarps * 32, kBlocksAtOnce<kWarps>)
    grove_leaves_kernel(const __grid_constant__ Call call) {
  const WarpTile own(call, Order::last_to_first);  // grove_sums.cu read grad_out
  BackwardLeaves<T, kWarps, kHasWide>(call, call.groves[own.block.grove], own.head).run(own);
}

}  // namespace

void groves_leaves(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  with_tile_blocks(params, [&]<class T, int kWarps, bool kHasWide>() {
    launch(grove_leaves_kernel<T, kWarps, kHasWide>, grid_of_tiles(call, params), kWarps * 32,
           BackwardLeaves<T, kWarps, kHasWide>::kMemory, stream, call);
  });
}

}  // namespace ramify::cuda
