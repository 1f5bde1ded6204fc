// Blocks that do the places of a grove, and their tables in shared memory: no round begins with a chain of loads.
#pragma once

#include <algorithm>

#include "kernels/cuda/grove.cuh"

namespace ramify::cuda {

// With the storage and the warps of a block: two a tile of the largest round, or one where there are more than 8; also
// one where blocks of two would be more than multiprocessors, of which each can have three of the smaller ones.
template <class Function>
void with_place_blocks(const AttentionParams& params, const Function& function) {
  with_storage(params, [&]<class T>() {
    const int64_t tiles = params.walk.totals.round_tiles;
    const auto blocks = static_cast<int64_t>(params.walk.groves.size()) * params.heads;
    tiles <= 2                                                     ? function.template operator()<T, 4>()
    : tiles <= 4 || (tiles <= 8 && blocks > num_multiprocessors()) ? function.template operator()<T, 8>()
                                                                   : function.template operator()<T, 16>();
  });
}
// That share a multiprocessor: small groves are many, and their blocks should all be there at once.
template <int kWarps>
constexpr int kPlaceBlocksAtOnce = kWarps == 16 ? 1 : 24 / kWarps;

// Memory for as many tiles as a round has, where there is so much. A block takes 1 KiB beside.
template <int kWarps>
struct PlaceStages {
  int count;
  size_t memory;

  PlaceStages(const AttentionParams& params, size_t of_block, size_t of_stage) {
    const size_t beside = 1024, all = (most_shared_memory() + beside) / kPlaceBlocksAtOnce<kWarps> - beside;
    const int most = all > of_block ? static_cast<int>((all - of_block) / of_stage) : 0;
    count = std::max(1, std::min({static_cast<int>(params.walk.totals.round_tiles), kWarps, most}));
    memory = of_block + count * of_stage;
  }
};

// Warps that work on one tile of a round: as many as there are parts of the work, where tiles are few, else two or one.
// A warp has its own part, and every `size`-th after it.
template <int kParts>
struct PlaceTeam {
  int size = 1, count = 0;

  PlaceTeam() = default;
  __device__ PlaceTeam(const GroveRound& round, int stages) {
    const int tiles = min(round.tile_end - round.tile_begin, stages), warps = warps_of_block();
    size = tiles * kParts <= warps ? kParts : tiles * 2 <= warps ? 2 : 1;
    count = min(stages, teams(warps));
  }
  __device__ int index() const { return teams(warp_of_thread()); }
  __device__ int part() const { return warp_of_thread() - index() * size; }
  // warps / size, without a division by what is not known
  __device__ int teams(int warps) const { return size == kParts ? warps / kParts : warps >> (size - 1); }

  // The team's tiles of a round, and what is to be done with one in two steps, with a barrier behind each.
  template <class First, class Second>
  __device__ void for_tiles(const GroveRound& round, const First& first, const Second& second) const {
#pragma unroll 1
    for (int begin = round.tile_begin; begin < round.tile_end; begin += count) {
      const int t = index() < count ? begin + index() : round.tile_end;
      if (t < round.tile_end) first(t);
      __syncthreads();
      if (t < round.tile_end) second(t);
      __syncthreads();
    }
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

  // Each of the arrays by warps of its own, of which a block has four or more.
  __device__ void load(const Call& call) const {
    const int64_t tile_begin = grove.tile_begin + grove.num_leaf_tiles;
    const int64_t family_begin = grove.family_begin + grove.num_leaf_families;
    switch (warp_of_thread() % 4) {
      case 0:
        return copy(places, call.places + grove.place_begin, grove.num_places);
      case 1:
        return copy(tiles(), call.tiles + tile_begin, grove.num_tiles - grove.num_leaf_tiles);
      case 2:
        return copy(rounds(), call.grove_rounds + grove.round_begin, grove.num_rounds);
      default:
        return copy(families(), call.grove_families + family_begin, grove.num_families - grove.num_leaf_families);
    }
  }

 private:
  template <class Record>
  __device__ static void copy(uint32_t to, const Record* from, int count) {
    const int words = count * static_cast<int>(sizeof(Record) / 8), step = warps_of_block() / 4 * 32;
    const auto* bytes = reinterpret_cast<const char*>(from);
    for (int i = warp_of_thread() / 4 * 32 + lane_of_thread(); i < words; i += step) {
      copy_async8(to + 8 * i, bytes + 8 * i);
    }
  }
};

}  // namespace ramify::cuda
