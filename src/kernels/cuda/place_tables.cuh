// Blocks that do the places of a grove, and their tables in shared memory: no round begins with a chain of loads.
#pragma once

#include <algorithm>

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

constexpr int kPlaceWarps = 16;  // most in a block

// As many warps as a round has tiles of places, where there is memory for them.
struct PlaceBlock {
  int warps;
  size_t memory;

  PlaceBlock(const AttentionParams& params, size_t of_block, size_t of_warp) {
    const size_t most = (most_shared_memory() - of_block) / of_warp;
    warps =
        static_cast<int>(std::min<size_t>({static_cast<size_t>(params.walk.totals.round_tiles), kPlaceWarps, most}));
    memory = of_block + warps * of_warp;
  }
};

// There is room for all that a grove with so many places can have: a tile has 16 of them, a family two.
struct PlaceTables {
  BlockGrove grove;
  uint32_t places;
  int most;

  static __host__ __device__ int most_tiles(int most) { return (most + kRows - 1) / kRows; }
  static __host__ __device__ uint32_t size(int most) {
    return static_cast<uint32_t>(most * sizeof(GrovePlace) +
                                 most_tiles(most) * (sizeof(GroveTile) + sizeof(GroveRound)) +
                                 most / 2 * sizeof(GroveFamily));
  }
  __device__ uint32_t tiles() const { return places + most * sizeof(GrovePlace); }
  __device__ uint32_t rounds() const { return tiles() + most_tiles(most) * sizeof(GroveTile); }
  __device__ uint32_t families() const { return rounds() + most_tiles(most) * sizeof(GroveRound); }

  __device__ GrovePlace place(int p) const { return shared_at<GrovePlace>(places + p * sizeof(GrovePlace)); }
  __device__ GroveRound round(int r) const { return shared_at<GroveRound>(rounds() + r * sizeof(GroveRound)); }
  __device__ GroveTile tile(int t) const {
    return shared_at<GroveTile>(tiles() + (t - grove.num_leaf_tiles) * sizeof(GroveTile));
  }
  __device__ GroveFamily family(int f) const {
    return shared_at<GroveFamily>(families() + (f - grove.num_leaf_families) * sizeof(GroveFamily));
  }

  __device__ void load(const Call& call) const {
    copy(places, call.places + grove.place_begin, grove.num_places);
    copy(tiles(), call.tiles + grove.tile_begin + grove.num_leaf_tiles, grove.num_tiles - grove.num_leaf_tiles);
    copy(rounds(), call.grove_rounds + grove.round_begin, grove.num_rounds);
    copy(families(), call.grove_families + grove.family_begin + grove.num_leaf_families,
         grove.num_families - grove.num_leaf_families);
  }
  template <class Record>
  __device__ static void copy(uint32_t to, const Record* from, int count) {
    const int words = count * static_cast<int>(sizeof(Record) / 8);
    const auto* bytes = reinterpret_cast<const char*>(from);
    for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x))
      copy_async8(to + 8 * i, bytes + 8 * i);
  }
};

}  // namespace ramify::cuda
