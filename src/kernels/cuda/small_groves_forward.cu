// Tied queries in small groves, forward, in one launch: a block has a grove and a head, does the leaves, then the
// places, up and down, and finishes the leaves, whose a(leaf) stayed in shared memory. So q, k and v are read once and
// `out` is written once (docs/kernels.md).
#include "kernels/cuda/grove_above.cuh"
#include "kernels/cuda/grove_leaves_forward.cuh"
#include "kernels/cuda/grove_places_forward.cuh"

namespace ramify::cuda {
namespace {

constexpr int kMostTiles = 32;  // of leaves
constexpr int kWarps = 8;
// That share a multiprocessor, so that one reads while the other is busy with its places. Three, of 80 registers, are
// slower: they spill.
constexpr int kBlocksAtOnce = 2;

// Where things lie in shared memory: the tables of places, what is staged (tiles of k and v of each warp's leaves,
// later of places), 16 numbers of each warp, and the leaves: tiles of q, which become a(leaf), and the place above each
// row.
struct SmallGroveMemory {
  int most_places, most_tiles;

  static constexpr int kStaged = kWarps * 2 * kTileBytes;

  static SmallGroveMemory of(const BlockTotals& totals) {
    return {static_cast<int>(totals.grove_places), static_cast<int>(totals.grove_tiles)};
  }

  __host__ __device__ uint32_t staged() const { return ForwardPlaces<__half>::block_memory(most_places); }
  __host__ __device__ uint32_t leaves() const { return staged() + kStaged; }
  __host__ __device__ uint32_t scratch() const { return leaves() + most_tiles * kTileBytes; }
  __host__ __device__ uint32_t places() const { return scratch() + kWarps * kRows * 4; }
  __host__ __device__ uint32_t size() const { return places() + most_tiles * kRows * 2; }

  __device__ uint32_t leaf_tile(int t) const { return leaves() + t * kTileBytes; }
  __device__ int16_t& place_of_row(int t, int row) const {
    return shared_at<int16_t>(places() + 2 * (t * kRows + row));
  }
};

template <class T>
struct SmallGrove {
  GroveView view;
  SmallGroveMemory memory;

  using Leaves = ForwardLeaves<T, Values::stay>;
  __device__ Leaves leaves(int t) const {
    const uint32_t k = memory.staged() + warp_of_thread() * 2 * kTileBytes;
    return {view, {memory.leaf_tile(t), k}, memory.scratch() + 4 * warp_of_thread() * kRows};
  }

  // A warp has every kWarps-th tile. All of its q are on their way from the beginning, k and v of the next tile as soon
  // as those of this one are not needed any more.
  struct Next {
    Leaves leaves;
    GroveTile tile;
    bool is_there, is_first;

    __device__ void wait() const {
      if (!is_first) return wait_for_tiles();
      copy_async_wait<1>();  // q of other tiles may come later
      __syncwarp();
    }
    __device__ void release(PlaceArray array) const {
      if (!is_there) return;
      __syncwarp();
      leaves.load(array, tile);
    }
  };
  __device__ void attend() const {
    const int num_tiles = view.grove.num_leaf_tiles, first = warp_of_thread();
    if (first >= num_tiles) return;
    GroveTile tile = view.tile(first);
    leaves(first).load(tile);
    copy_async_commit();
#pragma unroll 1
    for (int t = first + kWarps; t < num_tiles; t += kWarps) leaves(t).load(kQ, view.tile(t));
    copy_async_commit();
#pragma unroll 1
    for (int t = first; t < num_tiles; t += kWarps) {
      const TileRows rows = view.leaf_rows(tile);
      if (lane_of_thread() < kRows) memory.place_of_row(t, lane_of_thread()) = static_cast<int16_t>(rows.family_place);
      const bool has_next = t + kWarps < num_tiles;
      if (has_next) tile = view.tile(t + kWarps);
      leaves(t).attend(rows, Next{leaves(t), tile, has_next, t == first});
    }
  }

  // out = y + pi · a(leaf). Each warp's tiles are those of before; eight lanes have a row, eight channels each.
  __device__ Above above(int place) const {
    const int global = static_cast<int>(view.grove.place_begin) + place;
    return {view.call, view.head, lane_of_thread() % 8, {place < 0 ? -1 : global, -1}};
  }
  __device__ void finish() const {
    constexpr int kTiles = (kMostTiles + kWarps - 1) / kWarps;
    const int num_tiles = view.grove.num_leaf_tiles, first = warp_of_thread();
    const auto first_place = [&](int t) { return memory.place_of_row(t, lane_of_thread() / 8); };
    Above from[kTiles];  // all on their way before the first is needed
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int t = first + i * kWarps;
      if (t < num_tiles) from[i] = above(first_place(t));
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int t = first + i * kWarps;
      if (t < num_tiles) finish_tile(t, first_place(t), from[i]);
    }
  }
  __device__ void finish_tile(int t, int last, Above from) const {
    const GroveTile tile = view.tile(t);
    T* out = lane_chunk<T>(view.call.out, view.leaf(tile.row), view.head);
    const int64_t step = 4 * view.call.out.row_stride;
#pragma unroll
    for (int i = 0; i < 4; ++i, out += step) {
      const int row = lane_of_thread() / 8 + 4 * i;
      if (row >= tile.num_rows) continue;
      const int place = memory.place_of_row(t, row);
      if (place != last) last = place, from = above(place);
      store16(out, from.chunk<T>(shared_at<uint4>(lane_cell(memory.leaf_tile(t), i))));
    }
  }
  // Leaves among inner nodes are in no tile: all they have is y of their places.
  __device__ void finish_leaf_places(const PlaceTables& tables) const {
    const int lane = lane_of_thread();
    for (int p = 4 * warp_of_thread() + lane / 8; p < view.grove.num_places; p += 4 * kWarps) {
      const int leaf = tables.place(p).leaf_row;
      if (leaf < 0) continue;
      T* out = view.row_of_leaf<T>(view.call.out, leaf) + 8 * (lane % 8);
      store16(out, above(p).template chunk<T>(make_uint4(0, 0, 0, 0)));
    }
  }
};

// What each phase needs of the grove is read again: it would be in the way of the others' registers.
template <class T>
__global__ void __launch_bounds__(kWarps * 32, kBlocksAtOnce)
    small_groves_forward_kernel(const __grid_constant__ Call call, SmallGroveMemory memory, int num_stages) {
  const HeadItem item = head_item(call);
  const auto places = [&] {
    return ForwardPlaces<T>(call, call.groves[item.item], item.head, memory.most_places, num_stages);
  };
  const auto small = [&] { return SmallGrove<T>{{call, call.groves[item.item], item.head}, memory}; };
  places().tables.load(call);
  wait_for_kernels_before();
  small().attend();
  wait_for_tiles();
  __syncthreads();
  places().run();
  small().finish();
  if (call.groves[item.item].has_leaf_places) small().finish_leaf_places(places().tables);
}

}  // namespace

bool takes_small_groves(const AttentionParams& params) {
  const BlockTotals& totals = params.walk.totals;
  const bool has_crown = params.walk.stage_begin.size() > 1;
  if (totals.grove_places == 0 || totals.has_wide || has_crown || totals.grove_tiles > kMostTiles) return false;
  // A multiprocessor's memory is all that a block can have and what each takes beside.
  constexpr size_t kBeside = 1024;
  return kBlocksAtOnce * (SmallGroveMemory::of(totals).size() + kBeside) <= most_shared_memory() + kBeside;
}

void small_groves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const auto memory = SmallGroveMemory::of(params.walk.totals);
  constexpr int kMostStages = SmallGroveMemory::kStaged / ForwardPlaces<__half>::kStageMemory;
  const int num_stages = std::min(kMostStages, static_cast<int>(params.walk.totals.round_tiles));
  with_storage(params, [&]<class T>() {
    launch(small_groves_forward_kernel<T>, grid_of_groves(call, params), kWarps * 32, memory.size(), stream, call,
           memory, num_stages);
  });
}

}  // namespace ramify::cuda
