// Tied queries in groves, forward: what is above the leaves' families, up to the roots of a grove and down again, a
// block for a grove and head, a warp for a tile of 16 places. Rounds leave each other means, energies, a(C) and y(C) in
// global memory (docs/algorithm.md, section 2; docs/kernels.md).
//
// Inside a grove everything is as if its roots had y = 0 and pi = 1. What is above adds y + pi · out (groves_finish).
#pragma once

#include "kernels/cuda/grove_above.cuh"
#include "kernels/cuda/grove_means.cuh"
#include "kernels/cuda/place_tables.cuh"

namespace ramify::cuda {
template <class T>
struct ForwardPlaces {
  enum Number { kKept, kGiven, kMass, kNumbers };

  // Attention, and the means of q, k and v.
  static constexpr int kParts = 4;

  // Where things lie in shared memory: tables and numbers of places, and stages of tiles.
  struct Memory {
    int most_places;
    uint32_t tables, staged;
    int num_stages;
  };

  GroveView view;
  Memory memory;
  PlaceTables tables;
  PlaceTeam<kParts> team = {};  // of the round
  uint32_t staging = 0;         // of this team: q, k and v, split, and 16 numbers

  static constexpr int kStageMemory = 3 * 2 * kTileBytes + kRowBytes;
  static __host__ __device__ uint32_t block_memory(int most_places) {
    const uint32_t bytes = PlaceTables::size(most_places) + kNumbers * most_places * sizeof(float);
    return (bytes + kRowBytes - 1) / kRowBytes * kRowBytes;
  }

  __device__ ForwardPlaces(const GroveView& grove, const Memory& where)
      : view(grove), memory(where), tables{grove.grove, where.tables, where.most_places} {}
  __device__ void begin(const GroveRound& round) {
    team = PlaceTeam<kParts>(round, memory.num_stages);
    staging = memory.staged + team.index() * kStageMemory;
  }

  __device__ float& number(Number which, int place) const {
    const uint32_t numbers = memory.tables + PlaceTables::size(memory.most_places);
    return shared_at<float>(numbers + 4 * (which * memory.most_places + place));
  }
  __device__ float& number_of_row(int row) const { return shared_at<float>(staging + 6 * kTileBytes + 4 * row); }
  __device__ TilesInARow<true> tiles() const { return {staging}; }

  // Leaves among inner nodes: their means are themselves, and what they are given comes down to their places.
  __device__ void set_leaf_places() const {
    const Call& call = view.call;
    for (int p = warp_of_thread(); p < view.grove.num_places; p += warps_of_block()) {
      const int leaf = tables.place(p).leaf_row;
      if (leaf < 0) continue;
      const int64_t row = view.place_row(p);
      write_split<T>(call.place_mean, 3 * row + kQ, view.leaf_pair<T>(call.q, leaf));
      write_split<T>(call.place_mean, 3 * row + kK, view.leaf_pair<T>(call.k, leaf));
      write_split<T>(call.place_mean, 3 * row + kV, view.leaf_pair<T>(call.v, leaf));
      reinterpret_cast<uint32_t*>(view.row_of_leaf<T>(call.value, leaf))[lane_of_thread()] = 0;
      if (lane_of_thread() == 0) call.place_energy[row] = minus_infinity();
    }
  }

  __device__ void load(const GroveTile& tile) const {
#pragma unroll 1
    for (int i = team.part(); i < 6; i += team.size) {
      load_part<T>(view, staging + i * kTileBytes, tile, view.call.place_mean, 6, i);
    }
    wait_for_tiles();
  }
  using Means = FamilyMeans<T, true, PlaceTables, TilesInARow<true>>;
  __device__ void take_part(const GroveTile& tile) const {
    const TileRows rows = view.place_rows(tile, tables);
    const Means means = {view, tables, tiles()};
    if (team.part() == 0) attend(rows, means);
    const int array = (team.part() == 0 ? team.size : team.part()) - 1;  // its first: attention is a part, too
    if (array <= kV) means.fold(rows, array, team.size);
  }
  // The places of a tile attend inside their families: a(C), or below the roots already y(C), and energies.
  __device__ void attend(const TileRows& rows, const Means& means) const {
    const Call& call = view.call;
    const GroveTile& tile = rows.tile;
    float energy[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) < tile.num_rows) energy[h] = call.place_energy[view.place_row(tile.row + row_of(h))];
    }
    const RowSight sight(rows, call.is_causal);
    float s[2][4] = {}, offset[2][2], factor[2];
    log_sizes(rows, offset);
    add_scores<T, true>(s, tiles()[kQ], tiles()[kK]);
    TileSoftmax softmax;
    softmax.take(sight, tile.row, offset, call.scale, s);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool is_below_root = from_lane(rows.family_place, row_of(h)) < 0;
      const Gates gates(energy[h], softmax.log_sum(h));
      factor[h] = softmax.inverse(h) * (is_below_root ? gates.given : 1.0f);
      if (lane_of_thread() % 4 != 0) continue;
      number_of_row(row_of(h)) = gates.total;
      if (row_of(h) < tile.num_rows) set_gates(tile.row + row_of(h), gates, is_below_root);
    }
    __syncwarp();
    means.fold_energies(rows, number_of_row(lane_of_thread() % kRows));
    float values[8][4] = {};
    add_product<T, true>(values, split_weights<T>(s), tiles()[kV]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      float* y = call.place_y + view.place_row(tile.row + row_of(h)) * kChannels;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        *reinterpret_cast<float2*>(y + column_of(n, 0)) =
            make_float2(factor[h] * values[n][2 * h], factor[h] * values[n][2 * h + 1]);
      }
    }
  }
  __device__ void set_gates(int place, const Gates& gates, bool is_below_root) const {
    number(kKept, place) = gates.kept, number(kGiven, place) = gates.given;
    if (is_below_root) set_mass(place, gates.kept);
  }
  __device__ void set_mass(int place, float mass) const {
    number(kMass, place) = mass;
    view.call.place_local_mass[view.place_row(place)] = mass;
  }

  __device__ float2& y_of(int place) const {
    return reinterpret_cast<float2*>(view.call.place_y + view.place_row(place) * kChannels)[lane_of_thread()];
  }
  // y(C) takes the place of a(C), of several places at once.
  static constexpr int kAtOnce = 8;
  __device__ void descend_to(int first, int end) const {
    int above[kAtOnce];
    float2 own[kAtOnce], y[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int p = first + i * warps_of_block();
      above[i] = p < end ? tables.place(p).family_place : -1;
      own[i] = y[i] = make_float2(0, 0);
      if (above[i] >= 0) own[i] = y_of(p), y[i] = y_of(above[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int p = first + i * warps_of_block();
      if (above[i] < 0) continue;
      const float mass = number(kMass, above[i]), weight = mass * number(kGiven, p);
      y_of(p) = make_float2(y[i].x + weight * own[i].x, y[i].y + weight * own[i].y);
      if (lane_of_thread() == 0) set_mass(p, mass * number(kKept, p));
    }
  }

  // Up to the roots; the tables are there.
  __device__ void rise() {
    const BlockGrove& grove = view.grove;
    if (grove.has_leaf_places) {
      set_leaf_places();
      __syncthreads();
    }
#pragma unroll 1
    for (int r = 0; r < grove.num_rounds; ++r) {
      const GroveRound round = tables.round(r);
      begin(round);
      team.for_tiles(
          round, [&](int t) { load(tables.tile(t)); }, [&](int t) { take_part(tables.tile(t)); });
    }
  }
  // And down again, to the places of all rounds from `first` on. Those of the last round are below the roots.
  __device__ void descend(int first) const {
#pragma unroll 1
    for (int r = view.grove.num_rounds - 2; r >= first; --r) {
      const GroveRound round = tables.round(r);
      for (int p = round.place_begin + warp_of_thread(); p < round.place_end; p += kAtOnce * warps_of_block()) {
        descend_to(p, round.place_end);
      }
      __syncthreads();
    }
  }
  // What comes down to the leaves of a place, to which all rounds from `first`, 0 or 1, on have descended.
  __device__ Above above(int place, int chunk, int first) const {
    if (place < 0) return {};
    const float* y = view.call.place_y;
    const int over = tables.place(place).family_place;
    if (over < 0 || first == 0 || place >= tables.round(0).place_end) {
      return {y, view.place_row(place), chunk, number(kMass, place)};
    }
    const float mass = number(kMass, over);
    Above its(y, view.place_row(over), chunk, mass * number(kKept, place));
    its.give(y, view.place_row(place), chunk, mass * number(kGiven, place));
    return its;
  }
};

}  // namespace ramify::cuda
