// Tied queries in small groves, forward, in one launch: a block has a grove and a head, does the leaves, then the
// places, up and down, and finishes the leaves, whose a(leaf) stayed in shared memory. So q, k and v are read once and
// `out` is written once (docs/kernels.md).
#include "kernels/cuda/grove_above.cuh"
#include "kernels/cuda/grove_leaves_forward.cuh"
#include "kernels/cuda/grove_places_forward.cuh"

namespace ramify::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTilesOfWarp = 4;
constexpr int kMostTiles = kWarps * kTilesOfWarp;  // of leaves
static_assert(kMostTiles == kSmallGroveTiles);
// That share a multiprocessor, so that one reads while the other is busy with its places. Three, of 80 registers, are
// slower: they spill.
constexpr int kBlocksAtOnce = 2;

// Where things lie in shared memory. Six tiles of each warp; what its rows see, 16 numbers and which tiles it has; what
// the grove is, for each warp; the tables of its places.
struct SmallGroveMemory {
  static constexpr uint32_t kLeaves = 0;
  // Two tiles a warp, which are free when the leaves are done. Places are staged there.
  static constexpr uint32_t kStaged = kLeaves + kMostTiles * kTileBytes;
  static constexpr uint32_t kSights = kStaged + kWarps * 2 * kTileBytes;
  static constexpr uint32_t kScratch = kSights + kMostTiles * kRows * sizeof(LeafSight);
  static constexpr uint32_t kLeafTiles = kScratch + kWarps * kRows * sizeof(float);
  static constexpr uint32_t kGrove = kLeafTiles + kMostTiles * sizeof(GroveTile);
  static constexpr uint32_t kBegins = kGrove + kWarps * sizeof(BlockGrove);
  static constexpr uint32_t kPlaces = (kBegins + kWarps * 3 * 8 + kRowBytes - 1) / kRowBytes * kRowBytes;

  using Places = ForwardPlaces<__half>;
  static constexpr int kMostStages = kWarps * 2 * kTileBytes / Places::kStageMemory;
  static size_t size(const BlockTotals& totals) {
    return kPlaces + Places::block_memory(static_cast<int>(totals.grove_places));
  }

  // Of the warp's i-th tile. q comes to where a(leaf) stays; k and v of the first two tiles to where the third and
  // fourth will be as far as those that are free do not suffice.
  __device__ static TilesApart tiles(int i) {
    const uint32_t own = kLeaves + warp_of_thread() * kTilesOfWarp * kTileBytes;
    const uint32_t free = kStaged + warp_of_thread() * 2 * kTileBytes;
    return {own + i * kTileBytes, i == 0 ? own + 2 * kTileBytes : free + (i == 1 ? kTileBytes : 0),
            i == 1 ? own + 3 * kTileBytes : free + (i > 1 ? kTileBytes : 0)};
  }
  __device__ static uint32_t sight(int i, int row) {
    return kSights + ((warp_of_thread() * kTilesOfWarp + i) * kRows + row) * sizeof(LeafSight);
  }
  __device__ static int place_of_row(int i, int row) { return shared_at<LeafSight>(sight(i, row)).place; }
  __device__ static BlockGrove& grove() {
    return shared_at<BlockGrove>(kGrove + warp_of_thread() * sizeof(BlockGrove));
  }
  __device__ static const void*& begin(int array) {
    return shared_at<const void*>(kBegins + (warp_of_thread() * 3 + array) * 8);
  }
  __device__ static uint32_t scratch() { return kScratch + warp_of_thread() * kRows * sizeof(float); }
  __device__ static GroveTile& leaf_tile(int i) {
    return shared_at<GroveTile>(kLeafTiles + (warp_of_thread() * kTilesOfWarp + i) * sizeof(GroveTile));
  }
};

// A grove and a head. A warp has every kWarps-th tile of leaves. What it needs to know of the grove is brought to
// shared memory long before it is needed: behind the copies of tiles even a small table would wait for microseconds.
template <class T, bool kHasTwigs>
struct SmallGrove {
  const Call& call;
  int head;

  using Memory = SmallGroveMemory;
  __device__ GroveView view() const { return {call, Memory::grove(), head}; }

  __device__ int num_tiles() const {
    return max(0, (view().grove.num_leaf_tiles - warp_of_thread() + kWarps - 1) / kWarps);
  }
  // Every warp for itself, and all at once: nothing waits for another.
  __device__ void read_grove(int64_t grove, int tile_stride) const {
    const int lane = lane_of_thread(), t = warp_of_thread() + lane * kWarps;
    const bool has_word = lane < static_cast<int>(sizeof(BlockGrove) / 4),
               may_have_tile = t < min(tile_stride, kMostTiles);
    const uint32_t word = has_word ? reinterpret_cast<const uint32_t*>(call.groves + grove)[lane] : 0;
    const GroveTile tile = may_have_tile ? call.tiles[grove * tile_stride + t] : GroveTile();
    if (has_word) reinterpret_cast<uint32_t*>(&Memory::grove())[lane] = word;
    if (may_have_tile) Memory::leaf_tile(lane) = tile;
    __syncwarp();
    if (lane < 3) Memory::begin(lane) = view().template row_of_leaf<T>(array(lane), 0);
    __syncwarp();
  }
  __device__ GroveTile tile(int i) const { return Memory::leaf_tile(i); }
  __device__ const Rows& array(int which) const { return which == kQ ? call.q : which == kK ? call.k : call.v; }

  using Leaves = ForwardLeaves<T, Values::stay>;
  __device__ Leaves leaves(int i) const { return {view(), Memory::tiles(i), Memory::scratch()}; }
  // What its rows see comes with q.
  __device__ void load(int i, int which) const {
    if (i >= num_tiles()) return;
    const int lane = lane_of_thread();
    const GroveTile its = tile(i);
    const auto stride = static_cast<int>(array(which).row_stride);
    const auto* from =
        static_cast<const T*>(Memory::begin(which)) + int64_t{its.row + lane / 8} * stride + 8 * (lane % 8);
    load_tile<T>(Memory::tiles(i)[which].high, from, int64_t{4} * stride, its.num_rows);
    constexpr int kWords = sizeof(LeafSight) / 8;  // tables begin at multiples of 8 bytes only
    if (which != kQ || lane >= kWords * its.num_rows) return;
    const auto* sights = reinterpret_cast<const char*>(call.leaf_sights + view().leaf(its.row));
    copy_async8(Memory::sight(i, 0) + 8 * lane, sights + 8 * lane);
  }
  // The first two tiles, which are all that has room at the beginning. Copies come in groups, in the order in which
  // they are needed.
  __device__ void load_first() const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int which = kQ; which <= kV; ++which) load(i, which);
      copy_async_commit();
    }
  }
  // What is released makes room for q, k and v of the third tile and of the fourth, in this order, each a group.
  struct Next {
    const SmallGrove& grove;
    int i;

    // v of the first two tiles comes with q and k. Behind it are the groups of the next tiles, as far as those begun.
    __device__ void wait_for_keys() const {
      i % 3 == 0 ? copy_async_wait<1>() : copy_async_wait<2>();
      __syncwarp();
    }
    __device__ void wait_for_values() const {  // k was released
      if (i >= 2) wait_for_keys();
    }
    __device__ void wait_for_all() const {
      if (i == 2) copy_async_wait<1>();
      if (i == 3) copy_async_wait<0>();
      wait_for_keys();
    }
    __device__ void release(PlaceArray array) const {
      const int n = 2 * i + (array == kV ? 1 : 0);
      __syncwarp();
      if (n < 6) grove.load(2 + n / 3, n % 3);
      copy_async_commit();
    }
  };
  __device__ void attend() const {
    const int count = num_tiles();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const Next next = {*this, i};
      next.wait_for_keys();
      const auto* sight = &shared_at<uint2>(Memory::sight(i, lane_of_thread() % kRows));
      const TileRows rows = view().leaf_rows(tile(i), sight);
      if constexpr (kHasTwigs) {
        leaves(i).attend(rows, next);
      } else {
        leaves(i).template attend_family<false>(rows, next);
      }
    }
  }

  // `above` tells what comes down to the leaves of a place.
  template <class Places>
  __device__ void finish(const Places& above) const {
    const int count = num_tiles(), row = lane_of_thread() / 8;
    const auto above_first = [&](int i) {
      return above(i < count && row < tile(i).num_rows ? Memory::place_of_row(i, row) : -1);
    };
    Above next = above_first(0);
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const Above its = next;
      next = above_first(i + 1);  // on its way while this one is finished
      finish_tile(i, its, above);
    }
  }
  template <class Places>
  __device__ void finish_tile(int i, Above from, const Places& above) const {
    const GroveTile its = tile(i);
    T* out = lane_chunk<T>(call.out, view().leaf(its.row), head);
    const int64_t step = 4 * call.out.row_stride;
    [[maybe_unused]] int last = Memory::place_of_row(i, lane_of_thread() / 8);
#pragma unroll
    for (int r = 0; r < 4; ++r, out += step) {
      const int row = lane_of_thread() / 8 + 4 * r;
      if (row >= its.num_rows) continue;
      if constexpr (kHasTwigs) {  // several families may share a tile
        const int place = Memory::place_of_row(i, row);
        if (place != last) last = place, from = above(place);
      }
      store16(out, from.chunk<T>(shared_at<uint4>(lane_cell(Memory::tiles(i).q, r))));
    }
  }
  // Leaves among inner nodes are in no tile: all they have is y of their places.
  template <class Places>
  __device__ void finish_leaf_places(const PlaceTables& tables, const Places& above) const {
    const int lane = lane_of_thread();
    for (int p = 4 * warp_of_thread() + lane / 8; p < view().grove.num_places; p += 4 * kWarps) {
      const int leaf = tables.place(p).leaf_row;
      if (leaf < 0) continue;
      T* out = view().template row_of_leaf<T>(call.out, leaf) + 8 * (lane % 8);
      store16(out, above(p).template chunk<T>(make_uint4(0, 0, 0, 0)));
    }
  }
};

template <class T, bool kHasTwigs>
__global__ void __launch_bounds__(kWarps * 32, kBlocksAtOnce)
    small_groves_forward_kernel(const __grid_constant__ Call call, int most_places, int num_stages, int tile_stride) {
  const HeadItem item = head_item(call);
  const SmallGrove<T, kHasTwigs> small = {call, item.head};
  const auto places = [&] {
    return ForwardPlaces<T>(small.view(),
                            {most_places, SmallGroveMemory::kPlaces, SmallGroveMemory::kStaged, num_stages});
  };
  small.read_grove(item.item, tile_stride);
  wait_for_kernels_before();
  small.load_first();
  places().tables.load(call);
  small.attend();
  wait_for_tiles();
  __syncthreads();
  places().rise();
  const int first = call.value.data == call.out.data ? 1 : 0;  // a backward pass needs y and pi of all places
  places().descend(first);
  const auto above = [&](int place) { return places().above(place, lane_of_thread() % 8, first); };
  small.finish(above);
  if (small.view().grove.has_leaf_places) small.finish_leaf_places(places().tables, above);
}

}  // namespace

bool takes_small_groves(const AttentionParams& params) {
  const BlockTotals& totals = params.walk.totals;
  const bool has_crown = params.walk.stage_begin.size() > 1;
  if (totals.grove_places == 0 || totals.has_wide || has_crown || totals.tile_stride == 0) return false;
  // A multiprocessor's memory is all that a block can have and what each takes beside.
  constexpr size_t kBeside = 1024;
  return kBlocksAtOnce * (SmallGroveMemory::size(totals) + kBeside) <= most_shared_memory() + kBeside;
}

void small_groves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const BlockTotals& totals = params.walk.totals;
  const int num_stages = std::min(SmallGroveMemory::kMostStages, static_cast<int>(totals.round_tiles));
  const auto run = [&](auto kernel) {
    launch(kernel, grid_of_groves(call, params), kWarps * 32, SmallGroveMemory::size(totals), stream, call,
           static_cast<int>(totals.grove_places), num_stages, static_cast<int>(totals.tile_stride));
  };
  with_storage(params, [&]<class T>() {
    totals.has_twigs || call.is_causal ? run(small_groves_forward_kernel<T, true>)
                                       : run(small_groves_forward_kernel<T, false>);
  });
}

}  // namespace ramify::cuda
