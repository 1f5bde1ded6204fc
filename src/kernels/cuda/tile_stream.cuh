// Tiles of leaves, none of a wide family, one after the other: while a warp computes with one, the next one comes. As
// many blocks as the device holds at once share all tiles.
#pragma once

#include <algorithm>

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

// What is known of a tile is read in three steps, each of which needs the one before.
struct StreamTile {
  WarpTile own;
  BlockGrove grove;
  TileRows rows;

  __device__ StreamTile(const Call& call, const WarpTile& its) : own(its) {
    if (own.is_there()) grove = call.groves[own.block.grove], rows.tile = own.tile(call);
  }
  __device__ void read_rows(const Call& call) {
    if (own.is_there()) rows = GroveView{call, grove, own.head}.leaf_rows(rows.tile);
  }
};

// load(tile, stage) begins to bring a tile to one of two stages, work(tile, stage) is done when it is there. Meanwhile
// a step is done for each of the tiles behind it.
template <class Load, class Work>
__device__ __forceinline__ void stream_tiles(const Call& call, uint32_t num_items, Order order, const Load& load,
                                             const Work& work) {
  const uint32_t step = gridDim.x;
  uint32_t item = blockIdx.x;
  const auto at = [&](uint32_t i) { return WarpTile(call, i, num_items, order); };
  StreamTile now(call, at(item)), next(call, at(item + step)), after(call, at(item + 2 * step));
  WarpTile later = at(item + 3 * step);
  now.read_rows(call), next.read_rows(call);
  if (now.own.is_there()) load(now, 0);
  copy_async_commit();
#pragma unroll 1
  for (int stage = 0; item < num_items; item += step, stage ^= 1) {
    if (next.own.is_there()) load(next, stage ^ 1);
    copy_async_commit();
    after.read_rows(call);
    const StreamTile last(call, later);
    later = at(item + 4 * step);
    copy_async_wait<1>();
    __syncwarp();
    if (now.own.is_there()) work(now, stage);
    __syncwarp();  // the copies of the tile after the next one take the place of what was read
    now = next, next = after, after = last;
  }
}

inline void launch_stream(const Kept& kept, void (*kernel)(Call, uint32_t), const Call& call,
                          const AttentionParams& params, int warps, int blocks_at_once, size_t memory,
                          cudaStream_t stream) {
  const dim3 all = grid_of_tiles(call, params);
  const unsigned at_once = blocks_on_device(blocks_at_once, memory);
  launch_keeping(kept, kernel, dim3(std::min(all.x, at_once)), warps * 32, memory, stream, call, all.x);
}

}  // namespace ramify::cuda
