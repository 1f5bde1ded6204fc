// Tied queries in groves, forward: 64 channels of a half type, families of leaves up to 256 wide and others up to 16, a
// block for a grove and head, a warp for a tile of 16 leaves. Twigs that share a tile are kept apart by masks, wide
// families look at several tiles of keys (docs/algorithm.md, section 2; docs/kernels.md).
//
// Inside a grove everything is as if its roots had y = 0 and pi = 1. What is above adds y + pi · out (groves_finish).
#include "kernels/cuda/place_tables.cuh"
#include "kernels/cuda/twig.cuh"

namespace ramify::cuda {
namespace {

enum Number { kEnergy, kKept, kGiven, kMass, kNumbers };
constexpr int kStagedTiles = 3;     // q, k, v of a warp's leaves; later their results, as floats, over q and k
constexpr int kFamiliesAtOnce = 5;  // of which one product gives the means of q, k and v

using ForwardPlaces = Places<3, kNumbers>;

template <class T, int kWarps>
struct ForwardGrove {
  GroveView view;
  uint32_t staging, scratch;  // of this warp: tiles, and 16 numbers
  ForwardPlaces places;
  PlaceTables tables;

  static constexpr int kStagingBytes = kWarps * kStagedTiles * kTileBytes, kScratchBytes = kWarps * kRows * 4;
  static size_t memory_size(int most_places) {
    return kStagingBytes + kScratchBytes + ForwardPlaces::size(most_places) + PlaceTables::size(most_places);
  }

  __device__ ForwardGrove(const Call& call, const BlockGrove& grove, int head, int most_places)
      : view{call, grove, head},
        staging(warp_of_thread() * kStagedTiles * kTileBytes),
        scratch(kStagingBytes + 4 * warp_of_thread() * kRows),
        places{kStagingBytes + kScratchBytes, most_places},
        tables{grove, static_cast<uint32_t>(kStagingBytes + kScratchBytes + ForwardPlaces::size(most_places)),
               most_places} {}

  // Tiles of leaves and of places differ in where their families are told of.
  template <bool kSplit>
  __device__ GroveFamily family(int f) const {
    if constexpr (kSplit) {
      return tables.family(f);
    } else {
      return view.family(f);
    }
  }

  __device__ const Rows& tensor(int array) const {
    const Call& call = view.call;
    return array == kQ ? call.q : array == kK ? call.k : call.v;
  }
  __device__ Tile staged(int array, int tiles_away = 0) const {
    return {staging + (tiles_away * kStagedTiles + array) * kTileBytes};
  }
  __device__ void load(int array, int row, int count) const {
    load_tile<T>(staged(array).high, tensor(array), view.leaf(row), count, view.head);
  }
  __device__ float& number_of_row(int row) const { return shared_at<float>(scratch + 4 * row); }

  // Leaves among inner nodes.
  __device__ void set_leaf_places() const {
    for (int p = warp_of_thread(); p < view.grove.num_places; p += kWarps) {
      const int row = view.place(p).leaf_row;
      if (row < 0) continue;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        places.template set<T>(static_cast<PlaceArray>(a), p, view.leaf_pair<T>(tensor(a), row));
      }
      if (lane_of_thread() == 0) places.number(kEnergy, p) = minus_infinity();
    }
  }

  // Where a mean of one array goes: to a place, and to the means of a root or to those that are saved.
  struct Target {
    int array = -1;  // -1: nowhere
    int begin = 0, end = 0;
    float inverse = 0;
    bool is_place = false;
    uint32_t place = 0;  // its first chunk, of this thread's channels
    float* global = nullptr;
  };
  template <bool kSplit>
  __device__ Target target_of(int array, int f, int place) const {
    const Call& call = view.call;
    Target target;
    if (place >= 0) {
      const int row = place & (kRows - 1);
      target.is_place = true;
      target.place = cell(places.row(array, place - row), row, 0) + 4 * (lane_of_thread() % 4);
      if (call.place_mean) target.global = call.place_mean + (3 * view.place_row(place) + array) * kChannels;
    } else {
      const GroveFamily family = this->template family<kSplit>(f);
      if (GroveView::is_tree(family)) return target;
      float* means = array == kQ ? call.mean_q : array == kK ? call.mean_k : call.mean_v;
      target.global = means + view.slot_row(family) * kChannels;
    }
    target.array = array;
    return target;
  }
  // Row 3 · f + a of the product is array a of the f-th family from `first` on.
  template <bool kSplit>
  __device__ Target target_of_row(int row, int first, int last) const {
    const int f = first + row / 3;
    if (row >= 3 * kFamiliesAtOnce || f > last) return {};
    const GroveFamily family = this->template family<kSplit>(f);
    Target target = target_of<kSplit>(row % 3, f, family.place);
    target.begin = family.begin, target.end = family.end;
    target.inverse = fast_inverse(static_cast<float>(family.size));
    return target;
  }
  __device__ void put(const Target& target, int n, float x, float y) const {
    x *= target.inverse, y *= target.inverse;
    if (target.global) *reinterpret_cast<float2*>(target.global + column_of(n, 0)) = make_float2(x, y);
    if (!target.is_place) return;
    const uint32_t at = target.place ^ (n << 4), packed = pack2<T>(x, y);
    const float2 rounded = unpack2<T>(packed);
    shared_at<uint32_t>(at) = packed;
    shared_at<uint32_t>(at + places.low()) = pack2<T>(x - rounded.x, y - rounded.y);
  }

  // The means of a tile's only family, or of its two: rows h of the product of sizes with q, k and v are all the sum of
  // family h, of which lane l takes channels 2 · l and 2 · l + 1.
  template <int kFamilies>
  struct Fold {
    int family[kFamilies], place[kFamilies];  // -1: there is none
    float inverse[kFamilies];
    float size[kFamilies][2][2];  // of the columns of a thread
  };
  template <bool kSplit, int kFamilies>
  __device__ void fold_few(const Fold<kFamilies>& fold, const Tile (&tiles)[3]) const {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& size = fold.size[i % kFamilies][i / 2];
      high[i] = pack2<T>(size[0], size[1]);
      const float2 rounded = unpack2<T>(high[i]);
      low[i] = pack2<T>(size[0] - rounded.x, size[1] - rounded.y);
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const uint32_t at = left_cell<kSplit>(tiles[a].high, tiles[a].last);
      float2 mean[kFamilies];
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        float c[2][4] = {};
        uint32_t b[4];
        load_matrices<true>(b, at ^ (n << 4));
        multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
        if constexpr (kSplit) {
          multiply_add<T>(c[0], low, b[0], b[1]), multiply_add<T>(c[1], low, b[2], b[3]);
          load_matrices<true>(b, (at ^ (n << 4)) + (tiles[a].low - tiles[a].high));
          multiply_add<T>(c[0], high, b[0], b[1]), multiply_add<T>(c[1], high, b[2], b[3]);
        }
#pragma unroll
        for (int h = 0; h < kFamilies; ++h) {
          if (lane_of_thread() / 4 == n) mean[h] = make_float2(c[0][2 * h], c[0][2 * h + 1]);
          if (lane_of_thread() / 4 == n + 1) mean[h] = make_float2(c[1][2 * h], c[1][2 * h + 1]);
        }
      }
#pragma unroll
      for (int h = 0; h < kFamilies; ++h) {
        if (fold.family[h] < 0) continue;
        mean[h].x *= fold.inverse[h], mean[h].y *= fold.inverse[h];
        put_mean<kSplit>(static_cast<PlaceArray>(a), fold.family[h], fold.place[h], mean[h]);
      }
    }
  }
  template <bool kSplit>
  __device__ void put_mean(PlaceArray array, int f, int place, float2 mean) const {
    const Target target = target_of<kSplit>(array, f, place);
    if (target.global) reinterpret_cast<float2*>(target.global)[lane_of_thread()] = mean;
    if (target.is_place) places.template set<T>(array, place, mean);
  }
  template <bool kSplit>
  __device__ void fold_two(const TileRows& rows, const float (&size)[2][2], const Tile (&tiles)[3]) const {
    const int first = rows.first_family(), ends[2] = {0, rows.tile.num_rows - 1};
    const int split = from_lane(rows.end(), 0) - rows.tile.row;  // where the second begins
    Fold<2> fold;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      fold.family[h] = h == 0 || split < rows.tile.num_rows ? first + h : -1;
      fold.place[h] = from_lane(rows.family_place, ends[h]);
      const int count = h == 0 ? split : rows.tile.num_rows - split;
      fold.inverse[h] =
          fold.family[h] < 0 ? 0.0f : fast_inverse(static_cast<float>(kSplit ? tables.family(first + h).size : count));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool is_its = (column_of(i / 2, i % 2) >= split) == (h == 1);
        fold.size[h][i / 2][i % 2] = is_its ? size[i / 2][i % 2] : 0.0f;
      }
    }
    fold_few<kSplit>(fold, tiles);
  }
  // The means of any families in a tile: products of who belongs to whom with q, k and v.
  template <bool kSplit>
  __device__ void fold_families(const TileRows& rows, const Tile (&tiles)[3]) const {
    const int first = rows.first_family(), last = first + rows.num_families() - 1;
    float size[2][2];
    sizes(rows, size);
    if (last - first < 2) return fold_two<kSplit>(rows, size, tiles);
    for (int f = first; f <= last; f += kFamiliesAtOnce) {
      const Target target[2] = {target_of_row<kSplit>(row_of(0), f, last), target_of_row<kSplit>(row_of(1), f, last)};
      uint32_t high[3][4], low[3][4];
#pragma unroll
      for (int a = 0; a < 3; ++a) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Target& to = target[i % 2];
          float x[2];
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int row = rows.tile.row + column_of(i / 2, j);
            x[j] = to.array == a && row >= to.begin && row < to.end ? size[i / 2][j] : 0.0f;
          }
          high[a][i] = pack2<T>(x[0], x[1]);
          if constexpr (kSplit) {
            const float2 rounded = unpack2<T>(high[a][i]);
            low[a][i] = pack2<T>(x[0] - rounded.x, x[1] - rounded.y);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        float c[2][4] = {};
#pragma unroll
        for (int a = 0; a < 3; ++a) {
          const uint32_t at = left_cell<kSplit>(tiles[a].high, tiles[a].last) ^ (n << 4);
          uint32_t b[4];
          load_matrices<true>(b, at);
          multiply_add<T>(c[0], high[a], b[0], b[1]), multiply_add<T>(c[1], high[a], b[2], b[3]);
          if constexpr (kSplit) {
            multiply_add<T>(c[0], low[a], b[0], b[1]), multiply_add<T>(c[1], low[a], b[2], b[3]);
            load_matrices<true>(b, at + (tiles[a].low - tiles[a].high));
            multiply_add<T>(c[0], high[a], b[0], b[1]), multiply_add<T>(c[1], high[a], b[2], b[3]);
          }
        }
        if (target[0].array >= 0) put(target[0], n, c[0][0], c[0][1]), put(target[0], n + 1, c[1][0], c[1][1]);
        if (last - f < 2) continue;  // all in the first eight rows
        if (target[1].array >= 0) put(target[1], n, c[0][2], c[0][3]), put(target[1], n + 1, c[1][2], c[1][3]);
      }
    }
  }
  // The mean over each family, by sizes, of the rows' numbers.
  template <bool kSplit>
  __device__ void fold_energies(const TileRows& rows) const {
    const float size = static_cast<float>(rows.size);
    const float sum = rows.family_sums(rows.family >= 0 ? size * number_of_row(lane_of_thread()) : 0.0f);
    if (!rows.is_first_of_family()) return;
    const int its_size = kSplit ? tables.family(rows.family).size : rows.end() - rows.begin();
    deliver_energy<kSplit>(rows.family, rows.family_place, sum * fast_inverse(static_cast<float>(its_size)));
  }
  template <bool kSplit>
  __device__ void deliver_energy(int f, int place, float energy) const {
    const Call& call = view.call;
    if (place >= 0) {
      places.number(kEnergy, place) = energy;
      if (call.place_energy) call.place_energy[view.place_row(place)] = energy;
      return;
    }
    const GroveFamily family = this->template family<kSplit>(f);
    if (GroveView::is_tree(family)) {
      call.root_energy[family.tree_root * call.heads + view.head] = energy;
    } else {
      call.energy[view.slot_row(family)] = energy;
    }
  }

  // Leaves attend inside their families or twigs: what they are given, with include_self also by themselves, goes over
  // q and k.
  __device__ void attend_family_of_16(const TileRows& rows) const {
    const Fold<1> fold = {{rows.first_family()}, {from_lane(rows.family_place, 0)}, {1.0f / kRows}, {{{1, 1}, {1, 1}}}};
    wait_for_tiles();
    fold_few<false>(fold, {staged(kQ), staged(kK), staged(kV)});
    float s[2][4] = {};
    add_scores<T, false>(s, staged(kQ), staged(kK));
    TileSoftmax softmax;
    softmax.take(FullSight{view.call.include_self}, view.call.scale, s);
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i / 4][i % 4] *= softmax.inverse(i % 4 / 2);
    float values[8][4] = {};
    add_product<T, false>(values, split_weights<T>(s), staged(kV));
    keep(values);
    float sum = softmax.log_sum(0) + softmax.log_sum(1);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane_of_thread() == 0) deliver_energy<false>(rows.family, rows.family_place, sum / kRows);
  }
  __device__ void attend_twigs(const TileRows& rows) const {
    const TwigSight sight(view, rows);
    wait_for_tiles();
    fold_families<false>(rows, {staged(kQ), staged(kK), staged(kV)});
    float s[2][4] = {}, total[2], values[8][4] = {};
    add_scores<T, false>(s, staged(kQ), staged(kK));
    weigh_twigs(sight, rows.tile.num_levels, view.call.scale, s, total);
    add_product<T, false>(values, split_weights<T>(s), staged(kV));
    keep(values);
    if (lane_of_thread() % 4 == 0) number_of_row(row_of(0)) = total[0], number_of_row(row_of(1)) = total[1];
    __syncwarp();
    fold_energies<false>(rows);
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
      for (int a = -first; a < 3; a += num_tiles) fold_wide(rows, static_cast<PlaceArray>(a), first, num_tiles);
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
    __syncthreads();  // nobody looks at keys any more
    if (!is_wide) return;
    keep(values);
    if (first != 0) return;
    float sum = 0;
    for (int row = lane_of_thread(); row < tile.num_keys; row += 32) sum += number_of_row(row);
    sum = warp_sum(sum) * fast_inverse(static_cast<float>(tile.num_keys));
    if (lane_of_thread() == 0) deliver_energy<false>(rows.family, rows.family_place, sum);
  }
  // The mean of one array over such a family.
  __device__ void fold_wide(const TileRows& rows, PlaceArray array, int first, int num_tiles) const {
    const uint32_t one = pack2<T>(1, 1), ones[4] = {one, one, one, one};
    float2 mean = make_float2(0, 0);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      float c[2][4] = {};
      for (int t = 0; t < num_tiles; ++t) {
        uint32_t b[4];
        load_matrices<true>(b, left_cell<false>(staged(array, first + t).high, kRows - 1) ^ (n << 4));
        multiply_add<T>(c[0], ones, b[0], b[1]), multiply_add<T>(c[1], ones, b[2], b[3]);
      }
      if (lane_of_thread() / 4 == n) mean = make_float2(c[0][0], c[0][1]);
      if (lane_of_thread() / 4 == n + 1) mean = make_float2(c[1][0], c[1][1]);
    }
    const float inverse = fast_inverse(static_cast<float>(rows.tile.num_keys));
    put_mean<false>(array, rows.first_family(), from_lane(rows.family_place, 0),
                    make_float2(inverse * mean.x, inverse * mean.y));
  }
  __device__ void keep(const float (&values)[8][4]) const {
    __syncwarp();
    // eight rows of a chunk touch all banks
    const int lane = lane_of_thread();
    const uint32_t own = kept_cell(lane / 4, lane % 4 / 2) + 8 * (lane % 2);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        shared_at<float2>((own ^ (n << 5)) + h * 8 * 2 * kRowBytes) =
            make_float2(values[n][2 * h], values[n][2 * h + 1]);
      }
    }
  }
  __device__ static void scale_rows(float (&values)[8][4], const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[n][i] *= factor[i / 2];
    }
  }
  // Four channels of a leaf's result, the chunks of a row exchanged as those of tiles are.
  __device__ uint32_t kept_cell(int row, int chunk) const {
    return staging + row * 2 * kRowBytes + ((chunk ^ ((row & 7) << 1)) << 4);
  }

  // a(C), then y(C), of places: floats, eight rows in the tile of v of a warp.
  template <class Value>
  __device__ Value& place_value(int p, int channel) const {
    return shared_at<Value>(((p / 8) * kStagedTiles + 2) * kTileBytes + (p % 8) * 2 * kRowBytes + 4 * channel);
  }

  __device__ void fold_places(const GroveTile& tile) const {
    fold_families<true>(view.place_rows(tile, tables),
                        {places.tile(kQ, tile), places.tile(kK, tile), places.tile(kV, tile)});
  }
  // Inner nodes attend inside their families.
  __device__ void attend_places(const GroveTile& tile) const {
    const TileRows rows = view.place_rows(tile, tables);
    const RowSight sight(rows, view.call.is_causal);
    float s[2][4] = {}, offset[2][2];
    log_sizes(rows, offset);
    add_scores<T, true>(s, places.tile(kQ, tile), places.tile(kK, tile));
    TileSoftmax softmax;
    softmax.take(sight, tile.row, offset, view.call.scale, s);
    const Weights weights = split_weights<T>(s);
    if (lane_of_thread() % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(h) >= tile.num_rows) continue;
        const int place = tile.row + row_of(h);
        const Gates gates(places.number(kEnergy, place), softmax.log_sum(h));
        number_of_row(row_of(h)) = gates.total;
        places.number(kKept, place) = gates.kept, places.number(kGiven, place) = gates.given;
      }
    }
    __syncwarp();
    fold_energies<true>(rows);
    float values[8][4] = {};
    add_product<T, true>(values, weights, places.tile(kV, tile));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      const float inverse = softmax.inverse(h);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        place_value<float2>(tile.row + row_of(h), column_of(n, 0)) =
            make_float2(inverse * values[n][2 * h], inverse * values[n][2 * h + 1]);
      }
    }
  }

  // y(C) takes the place of a(C).
  __device__ void descend(int p) const {
    const GrovePlace place = tables.place(p);
    if (place.family < 0) return;
    const int above = place.family_place, channel = 2 * lane_of_thread();
    float2& own = place_value<float2>(p, channel);
    float2 y = make_float2(0, 0);
    float mass = 1;
    if (above >= 0) {
      y = place_value<float2>(above, channel);
      mass = places.number(kMass, above);
    }
    const float weight = mass * places.number(kGiven, p);
    y.x += weight * own.x, y.y += weight * own.y;
    own = y;
    mass *= places.number(kKept, p);
    if (lane_of_thread() == 0) places.number(kMass, p) = mass;
    if (view.call.place_y) {
      const int64_t row = view.place_row(p);
      reinterpret_cast<float2*>(view.call.place_y + row * kChannels)[lane_of_thread()] = y;
      if (lane_of_thread() == 0) view.call.place_local_mass[row] = mass;
    }
    if (place.leaf_row < 0) return;
    reinterpret_cast<uint32_t*>(view.row_of_leaf<T>(view.call.out, place.leaf_row))[lane_of_thread()] =
        pack2<T>(y.x, y.y);
  }

  __device__ static uint32_t rest_of(float x, float y, uint32_t rounded) {
    const float2 taken = unpack2<T>(rounded);
    return pack2<T>(x - taken.x, y - taken.y);
  }
  // out = y + pi · a, eight channels of four rows at a time.
  __device__ void finish_leaves(const TileRows& rows) const {
    const Call& call = view.call;
    const int lane = lane_of_thread(), chunk = lane % 8;
    const uint32_t kept = kept_cell(lane / 8, 2 * chunk);
    const int64_t leaf = view.leaf(rows.tile.row);
    T* out = lane_chunk<T>(call.out, leaf, view.head);
    const int64_t first = ((leaf + lane / 8) * call.heads + view.head) * kChannels + 8 * chunk;
    const bool keeps_rest = call.leaf_rest && rows.tile.num_keys > kRows;
    float4 y[2] = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
    float mass = 1;
    int last = -1;  // whose y it is
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int above = from_lane(rows.family_place, lane / 8 + 4 * i);
      if (lane / 8 + 4 * i >= rows.tile.num_rows) continue;
      if (above != last) {
        last = above, mass = 1, y[0] = y[1] = make_float4(0, 0, 0, 0);
        if (above >= 0) {
          mass = places.number(kMass, above);
          y[0] = place_value<float4>(above, 8 * chunk), y[1] = place_value<float4>(above, 8 * chunk + 4);
        }
      }
      uint4 results, values;
      const uint32_t at = (kept ^ ((i & 1) << 7)) + i * 4 * 2 * kRowBytes;
      const float4 x = shared_at<float4>(at), z = shared_at<float4>(at + 16);
      values = make_uint4(pack2<T>(x.x, x.y), pack2<T>(x.z, x.w), pack2<T>(z.x, z.y), pack2<T>(z.z, z.w));
      results = make_uint4(
          pack2<T>(y[0].x + mass * x.x, y[0].y + mass * x.y), pack2<T>(y[0].z + mass * x.z, y[0].w + mass * x.w),
          pack2<T>(y[1].x + mass * z.x, y[1].y + mass * z.y), pack2<T>(y[1].z + mass * z.z, y[1].w + mass * z.w));
      *reinterpret_cast<uint4*>(out + 4 * i * call.out.row_stride) = results;
      const int64_t at_value = first + 4 * i * call.heads * kChannels;
      if (call.leaf_value) *reinterpret_cast<uint4*>(static_cast<T*>(call.leaf_value) + at_value) = values;
      if (keeps_rest) {
        *reinterpret_cast<uint4*>(static_cast<T*>(call.leaf_rest) + at_value) =
            make_uint4(rest_of(x.x, x.y, values.x), rest_of(x.z, x.w, values.y), rest_of(z.x, z.y, values.z),
                       rest_of(z.z, z.w, values.w));
      }
    }
  }

  __device__ void run() const {
    const BlockGrove& grove = view.grove;
    const bool has_tile = warp_of_thread() < grove.num_leaf_tiles;
    TileRows rows;
    if (has_tile) {
      const GroveTile tile = view.tile(warp_of_thread());
#pragma unroll
      for (int a = 0; a < kStagedTiles; ++a) load(a, tile.row, tile.num_rows);
      rows = view.leaf_rows(tile);
    }
    if (grove.num_places > 0) tables.load(view.call);
    if (!has_tile) wait_for_tiles();
    if (grove.has_leaf_places) set_leaf_places();
    const bool is_wide = has_tile && rows.tile.num_keys > kRows;
    if (has_tile && !is_wide) {
      !view.call.is_causal&& rows.is_one_family_of_16() ? attend_family_of_16(rows) : attend_twigs(rows);
    }
    if (grove.has_wide) attend_wide(rows, is_wide);
    __syncthreads();
    for (int r = 0; r < grove.num_rounds; ++r) {
      const GroveRound round = tables.round(r);
      // two warps a tile
      for (int t = round.tile_begin + warp_of_thread() / 2; t < round.tile_end; t += kWarps / 2) {
        warp_of_thread() % 2 == 0 ? attend_places(tables.tile(t)) : fold_places(tables.tile(t));
      }
      __syncthreads();
    }
    for (int r = grove.num_rounds - 1; r >= 0; --r) {
      const GroveRound round = tables.round(r);
      for (int p = round.place_begin + warp_of_thread(); p < round.place_end; p += kWarps) descend(p);
      __syncthreads();
    }
    if (has_tile) finish_leaves(rows);
  }
};

template <class T, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 32 / kWarps)
    grove_forward_kernel(const __grid_constant__ Call call, int most_places) {
  const HeadItem item = head_item(call);
  ForwardGrove<T, kWarps>(call, call.groves[item.item], item.head, most_places).run();
}

template <class T>
void launch_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const BlockTotals& totals = params.walk.totals;
  const dim3 grid(static_cast<unsigned>(params.walk.groves.size() * call.heads));
  const auto most_places = static_cast<int>(totals.grove_places);
  const auto run = [&]<int kWarps>() {
    launch(grove_forward_kernel<T, kWarps>, grid, kWarps * 32, ForwardGrove<T, kWarps>::memory_size(most_places),
           stream, call, most_places);
  };
  // eight places a warp
  if (totals.grove_tiles <= 8 && totals.grove_places <= 64) return run.template operator()<8>();
  totals.grove_tiles <= 16 ? run.template operator()<16>() : run.template operator()<32>();
}

}  // namespace

void groves_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  params.storage == Storage::bfloat16 ? launch_forward<__nv_bfloat16>(call, params, stream)
                                      : launch_forward<__half>(call, params, stream);
}

bool large_groves_fit() {
  return ForwardGrove<__half, 32>::memory_size(kLargeGroves.places) <= most_shared_memory();
}

}  // namespace ramify::cuda
