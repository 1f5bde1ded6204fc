// The leaves of groves, forward, each tile for itself: what they are given inside their family or twig goes to `value`.
#include "kernels/cuda/grove_leaves_forward.cuh"

namespace ramify::cuda {
namespace {

// That share a multiprocessor.
template <int kWarps>
constexpr int kBlocksAtOnce = kWarps == 4   ? 8
                              : kWarps == 8 ? 3
                                            : 1;

template <class T, int kWarps, bool kHasWide>
__global__ void __launch_bounds__(kWarps * 32, kBlocksAtOnce<kWarps>)
    grove_leaves_forward_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const WarpTile own(call);
  if (!kHasWide && !own.is_there()) return;
  using Leaves = ForwardLeaves<T, Values::leave>;
  const uint32_t staging = warp_of_thread() * Leaves::kStagedTiles * kTileBytes;
  const uint32_t scratch = kWarps * Leaves::kStagedTiles * kTileBytes + 4 * warp_of_thread() * kRows;
  const Leaves leaves{{call, call.groves[own.block.grove], own.head}, {staging}, scratch};
  TileRows rows;
  if (own.is_there()) {
    const GroveTile tile = own.tile(call);
    leaves.load(tile);
    rows = leaves.view.leaf_rows(tile);
  }
  const bool is_wide = kHasWide && own.is_there() && rows.tile.num_keys > kRows;
  if (own.is_there() && !is_wide) leaves.attend(rows, NothingNext());
  if constexpr (kHasWide) {
    if (own.block.has_wide) leaves.attend_wide(rows, is_wide);
  }
}

}  // namespace

void groves_leaves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  with_tile_blocks(params, [&]<class T, int kWarps, bool kHasWide>() {
    constexpr int kMemory = kWarps * (ForwardLeaves<T, Values::leave>::kStagedTiles * kTileBytes + 4 * kRows);
    launch(grove_leaves_forward_kernel<T, kWarps, kHasWide>, grid_of_tiles(call, params), kWarps * 32, kMemory, stream,
           call);
  });
}

}  // namespace ramify::cuda
