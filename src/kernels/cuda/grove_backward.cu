// Tied queries in groves, backward (docs/algorithm.md, section 4; docs/kernels.md). With y and pi as they are inside a
// grove, where its root has y = 0 and pi = 1, and out likewise,
//     pi(C) · grad_pi(C) = sum over the leaves below C of grad_out · (out - y(C)),
// so the way up needs no weights: it sums grad_out and grad_out · out, with out = y + pi · a(leaf) from what was saved,
// since the result itself is rounded. Then come places, from the roots down, and last the leaves, a warp for a tile.
#include "kernels/cuda/twig.cuh"

namespace ramify::cuda {
namespace {

constexpr int kWarps = 8, kPlaceWarps = 4;

// The way up: a family's sums of grad_out and of grad_out · out.
template <class T>
struct SumsOfGrove {
  GroveView view;

  // Of a family of leaves: `gain` is the sum of grad_out · a(leaf), over all lanes.
  __device__ void deliver_leaves(int f, int place, float2 sum, float gain) const {
    deliver_leaves(f, place, sum, gain, family_value(place));
  }
  // y and pi of a family inside the grove.
  struct FamilyValue {
    float2 y;
    float mass;
  };
  __device__ FamilyValue family_value(int place) const {
    if (place < 0) return {make_float2(0, 0), 1};
    const int64_t row = view.place_row(place);
    return {reinterpret_cast<const float2*>(view.call.place_y + row * kChannels)[lane_of_thread()],
            view.call.place_local_mass[row]};
  }
  __device__ void deliver_leaves(int f, int place, float2 sum, float gain, const FamilyValue& its) const {
    deliver(f, place, sum, warp_sum(its.mass * gain + its.y.x * sum.x + its.y.y * sum.y));
  }
  __device__ float dot_with_y(int place, float2 x) const {
    const float2 y =
        reinterpret_cast<const float2*>(view.call.place_y + view.place_row(place) * kChannels)[lane_of_thread()];
    return y.x * x.x + y.y * x.y;
  }
  __device__ void deliver(int f, int place, float2 sum, float dot) const {
    const Call& call = view.call;
    if (place >= 0) {
      const int64_t row = view.family_row(f);
      reinterpret_cast<float2*>(call.family_grad_y + row * kChannels)[lane_of_thread()] = sum;
      if (lane_of_thread() == 0) call.family_dot[row] = dot;
      return;
    }
    const GroveFamily family = view.family(f);
    if (!GroveView::is_tree(family)) {
      const int64_t row = view.slot_row(family);
      reinterpret_cast<float2*>(call.grad_y + row * kChannels)[lane_of_thread()] = sum;
      if (lane_of_thread() == 0) call.inner_gain[row] = call.mass[row] * dot;
    }
  }

  // A tile that is one family or twig of 16: eight channels of four rows a lane.
  __device__ void sum_rows_of_16(const TileRows& rows) const {
    const Call& call = view.call;
    const int lane = lane_of_thread(), f = rows.first_family(), place = from_lane(rows.family_place, 0);
    const int64_t leaf = view.leaf(rows.tile.row);
    const T* grad = lane_chunk<T>(call.grad_out, leaf, view.head);
    const T* value = static_cast<const T*>(call.leaf_value) + ((leaf + lane / 8) * call.heads + view.head) * kChannels +
                     8 * (lane % 8);
    uint4 x[4], a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = *reinterpret_cast<const uint4*>(grad + 4 * i * call.grad_out.row_stride);
      a[i] = *reinterpret_cast<const uint4*>(value + 4 * i * call.heads * kChannels);
    }
    const FamilyValue its = family_value(place);
    float sum[8] = {}, gain = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float2 g = unpack2<T>((&x[i].x)[w]), v = unpack2<T>((&a[i].x)[w]);
        sum[2 * w] += g.x, sum[2 * w + 1] += g.y;
        gain += g.x * v.x + g.y * v.y;
      }
    }
    float2 own = make_float2(0, 0);  // of channels 2 · lane and 2 · lane + 1
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float2 total = make_float2(sum[2 * w], sum[2 * w + 1]);
#pragma unroll
      for (int step = 8; step < 32; step *= 2) {
        total.x += __shfl_xor_sync(0xffffffffu, total.x, step), total.y += __shfl_xor_sync(0xffffffffu, total.y, step);
      }
      total.x = from_lane(total.x, lane / 4), total.y = from_lane(total.y, lane / 4);
      if (lane % 4 == w) own = total;
    }
    deliver_leaves(f, place, own, gain, its);
  }
  __device__ void sum_tile(const TileRows& rows) const {
    const GroveTile& tile = rows.tile;
    const auto is_last = rows.family >= 0 && rows.end() == tile.row + lane_of_thread() + 1;
    const unsigned ends = __ballot_sync(0xffffffffu, is_last);
    uint32_t grad[kRows], value[kRows];
    const T* from = view.row_of_leaf<T>(view.call.grad_out, tile.row) + 2 * lane_of_thread();
    const T* from_value = view.leaf_value<T>(tile.row) + 2 * lane_of_thread();
    const int64_t step = view.call.grad_out.row_stride, value_step = view.call.heads * kChannels;
#pragma unroll
    for (int r = 0; r < kRows; ++r, from += step, from_value += value_step) {
      grad[r] = value[r] = 0;
      if (r >= tile.num_rows) continue;
      grad[r] = *reinterpret_cast<const uint32_t*>(from);
      value[r] = *reinterpret_cast<const uint32_t*>(from_value);
    }
    float2 sum = make_float2(0, 0);
    float gain = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      add(unpack2<T>(grad[r]), unpack2<T>(value[r]), sum, gain);
      if ((ends >> r & 1) == 0) continue;
      deliver_leaves(from_lane(rows.family, r), from_lane(rows.family_place, r), sum, gain);
      sum = make_float2(0, 0), gain = 0;
    }
  }
  __device__ static void add(float2 grad, float2 value, float2& sum, float& gain) {
    sum.x += grad.x, sum.y += grad.y;
    gain += grad.x * value.x + grad.y * value.y;
  }

  // The families of a tile's leaves; a wide one with its first tile.
  __device__ void sum_leaves(const GroveTile& tile) const {
    const TileRows rows = view.leaf_rows(tile);
    if (tile.num_keys <= kRows) return rows.is_one_twig_of_16() ? sum_rows_of_16(rows) : sum_tile(rows);
    if (tile.row != tile.key) return;
    float2 sum = make_float2(0, 0);
    float gain = 0;
#pragma unroll 4
    for (int row = tile.key; row < tile.key + tile.num_keys; ++row) {
      const auto* value = reinterpret_cast<const uint32_t*>(view.leaf_value<T>(row));
      add(view.leaf_pair<T>(view.call.grad_out, row), unpack2<T>(value[lane_of_thread()]), sum, gain);
    }
    deliver_leaves(rows.first_family(), from_lane(rows.family_place, 0), sum, gain);
  }
  // The families above them, by one warp.
  __device__ void sum_places() const {
    const BlockGrove& grove = view.grove;
    for (int r = 0; r < grove.num_rounds; ++r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int f = round.family_begin; f < round.family_end; ++f) sum_family(f);
      __syncwarp();
    }
  }
  __device__ void sum_family(int f) const {
    const GroveFamily family = view.family(f);
    float2 sum = make_float2(0, 0);
    float dot = 0, dot_of_leaves = 0;
#pragma unroll 4
    for (int p = family.begin; p < family.end; ++p) {
      const GrovePlace place = view.place(p);
      if (place.leaf_row >= 0) {
        const float2 x = view.leaf_pair<T>(view.call.grad_out, place.leaf_row);
        sum.x += x.x, sum.y += x.y;
        dot_of_leaves += dot_with_y(p, x);
        continue;
      }
      const int64_t row = view.family_row(place.own_family);
      const float2 x = reinterpret_cast<const float2*>(view.call.family_grad_y + row * kChannels)[lane_of_thread()];
      sum.x += x.x, sum.y += x.y;
      dot += view.call.family_dot[row];
    }
    deliver(f, family.place, sum, dot + warp_sum(dot_of_leaves));
  }
};

// A block has up to 8 tiles of a grove and head, a warp each.
struct TileItem {
  int head;
  int64_t grove;
  int tile;
};
__device__ __forceinline__ TileItem tile_item(const Call& call, int chunks) {
  const int64_t item = blockIdx.x / call.heads;
  return {static_cast<int>(blockIdx.x % call.heads), item / chunks,
          static_cast<int>(item % chunks) * kWarps + warp_of_thread()};
}

template <class T>
__global__ void __launch_bounds__(kWarps * 32, 4) grove_sums_kernel(const __grid_constant__ Call call, int chunks) {
  const TileItem item = tile_item(call, chunks);
  const BlockGrove& grove = call.groves[item.grove];
  if (item.tile >= grove.num_leaf_tiles || (grove.num_places == 0 && grove.is_whole)) return;
  const SumsOfGrove<T> sums{{call, grove, item.head}};
  sums.sum_leaves(sums.view.tile(item.tile));
}
template <class T>
__global__ void __launch_bounds__(32) grove_place_sums_kernel(const __grid_constant__ Call call) {
  const HeadItem item = head_item(call);
  SumsOfGrove<T>{{call, call.groves[item.item], item.head}}.sum_places();
}

// What a row's weights pull at: the gradient of a score is p · (pull + reach · grad_out · v).
struct Looking {
  float pull[2] = {0, 0}, reach[2] = {0, 0};
};

// Weights p become gradients of scores times scale, grad_p becomes p · reach, for the gradient of v.
__device__ __forceinline__ void differentiate(const Looking& looking, const float (&inverse)[2], float scale,
                                              float (&p)[2][4], float (&grad_p)[2][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float &x = p[n][2 * h + j], &y = grad_p[n][2 * h + j];
        const float weight = inverse[h] * x;
        x = weight == 0 ? 0.0f : scale * weight * (looking.pull[h] + looking.reach[h] * y);
        y = weight * looking.reach[h];
      }
    }
  }
}

// What a family gets from above, and where the gradients of its mean lie (nullptr: above a tree there is none).
struct FamilyAbove {
  float mass = 1, grad_energy = 0;
};
__device__ __forceinline__ FamilyAbove root_above(const GroveView& view, const GroveFamily& family) {
  const Call& call = view.call;
  if (GroveView::is_tree(family)) return {1, call.grad_root_energy[family.tree_root * call.heads + view.head]};
  return {call.mass[view.slot_row(family)], call.grad_energy[view.slot_row(family)]};
}
__device__ __forceinline__ const float* root_gradient(const GroveView& view, const GroveFamily& family,
                                                      PlaceArray array) {
  const Call& call = view.call;
  if (GroveView::is_tree(family)) return nullptr;
  const float* rows = array == kQ ? call.grad_mean_q : array == kK ? call.grad_mean_k : call.grad_mean_v;
  return rows + view.slot_row(family) * kChannels;
}

// Places, from the roots down.
template <class T>
struct BackwardPlaces {
  enum Number { kEnergy, kInnerGain, kMass, kRootMass, kGradEnergy, kNumbers };
  using Memory = Places<4, kNumbers>;

  GroveView view;
  Memory places;

  __device__ void fill_place(int p) const {
    const Call& call = view.call;
    const GrovePlace place = view.place(p);
    if (place.family < 0) return;
    float2 grad_y;
    float energy = minus_infinity(), inner_gain = 0;
    if (place.leaf_row >= 0) {
      places.template set<T>(kQ, p, view.leaf_pair<T>(call.q, place.leaf_row));
      places.template set<T>(kK, p, view.leaf_pair<T>(call.k, place.leaf_row));
      places.template set<T>(kV, p, view.leaf_pair<T>(call.v, place.leaf_row));
      grad_y = view.leaf_pair<T>(call.grad_out, place.leaf_row);
    } else {
      const auto* means = reinterpret_cast<const float2*>(call.place_mean + 3 * view.place_row(p) * kChannels);
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        places.template set<T>(static_cast<PlaceArray>(a), p, means[a * kChannels / 2 + lane_of_thread()]);
      }
      const int64_t row = view.family_row(place.own_family);
      grad_y = reinterpret_cast<const float2*>(call.family_grad_y + row * kChannels)[lane_of_thread()];
      const float2 y = reinterpret_cast<const float2*>(call.place_y + view.place_row(p) * kChannels)[lane_of_thread()];
      inner_gain = call.family_dot[row] - warp_sum(y.x * grad_y.x + y.y * grad_y.y);
      energy = call.place_energy[view.place_row(p)];
      const float inverse = fast_inverse(static_cast<float>(place.size));  // a mean: float16 ends at 65504
      grad_y.x *= inverse, grad_y.y *= inverse;
    }
    places.template set<T>(kGradY, p, grad_y);
    if (lane_of_thread() == 0) places.number(kEnergy, p) = energy, places.number(kInnerGain, p) = inner_gain;
  }

  __device__ FamilyAbove above(int place, const GroveFamily& family) const {
    if (place < 0) return root_above(view, family);
    return {places.number(kMass, place), places.number(kGradEnergy, place)};
  }
  // Where the gradient of a place's mean lies once its own tile is done.
  __device__ static PlaceArray gradient_of(PlaceArray array) {
    return array == kK ? kGradY : array;
  }

  // Gradients of the means of a tile's places take the places of the means; those of leaves go to the tensors.
  __device__ void differentiate_tile(const GroveTile& tile) const {
    const TileRows rows = view.place_rows(tile);
    const RowSight sight(rows, view.call.is_causal);
    float s[2][4] = {}, grad_p[2][4] = {}, factor[2], offset[2][2];
    log_sizes(rows, offset);
    add_scores<T, true>(s, places.tile(kQ, tile), places.tile(kK, tile));
    add_scores<T, true>(grad_p, places.tile(kGradY, tile), places.tile(kV, tile));
    TileSoftmax softmax;
    softmax.add(sight, tile.row, offset, view.call.scale, s, factor);
    const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float gain = gain_of(s, grad_p, h, inverse[h]);
      if (row_of(h) >= tile.num_rows) continue;
      const int p = tile.row + row_of(h);
      const GrovePlace place = view.place(p);
      const GroveFamily family = view.family(place.family);
      const FamilyAbove from = above(family.place, family);
      const Gates gates(places.number(kEnergy, p), softmax.log_sum(h));
      const auto size = static_cast<float>(place.size);
      const float root_mass = family.place >= 0 ? places.number(kRootMass, family.place) : from.mass;
      const float grad_total = size * fast_inverse(static_cast<float>(family.size)) * from.grad_energy;
      gain *= size;  // rows hold means of grad_out
      const float delta = gates.given * (root_mass * places.number(kInnerGain, p) - from.mass * gates.kept * gain);
      looking.pull[h] = gates.given * grad_total - delta - from.mass * gates.given * gain;
      looking.reach[h] = from.mass * gates.given * size;
      if (warp_of_thread() == 0 && lane_of_thread() % 4 == 0) {
        places.number(kGradEnergy, p) = delta + gates.kept * grad_total;
        places.number(kMass, p) = from.mass * gates.kept, places.number(kRootMass, p) = root_mass;
      }
    }
    differentiate(looking, inverse, view.call.scale, s, grad_p);
    // an array a warp
    float c[8][4] = {};
    const int array = warp_of_thread();
    if (array == kQ) add_gradient<T, true, false>(c, s, places.tile(kK, tile));
    if (array == kK) add_gradient<T, true, true>(c, s, places.tile(kQ, tile));
    if (array == kV) add_gradient<T, true, true>(c, grad_p, places.tile(kGradY, tile));
    __syncthreads();
    if (array <= kV) set_gradient(tile, static_cast<PlaceArray>(array), c);
  }
  // Adds each row's share of what its family's mean got.
  __device__ void set_gradient(const GroveTile& tile, PlaceArray array, const float (&c)[8][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      const int p = tile.row + row_of(h);
      const GrovePlace place = view.place(p);
      const GroveFamily family = view.family(place.family);
      const float part = static_cast<float>(place.size) * fast_inverse(static_cast<float>(family.size));
      const float* root = family.place >= 0 ? nullptr : root_gradient(view, family, array);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int channel = column_of(n, 0);
        float2 x = make_float2(c[n][2 * h], c[n][2 * h + 1]), above = make_float2(0, 0);
        if (family.place >= 0) {
          above = places.template floats<float2>(gradient_of(array), family.place, channel);
        } else if (root) {
          above = *reinterpret_cast<const float2*>(root + channel);
        }
        x.x += part * above.x, x.y += part * above.y;
        places.template floats<float2>(gradient_of(array), p, channel) = x;
      }
    }
  }

  // A place's gradients: to the leaf that it is, or to where the leaves of its family find them.
  __device__ void deliver(int p) const {
    const Call& call = view.call;
    const GrovePlace place = view.place(p);
    if (place.family < 0 || place.own_family >= view.grove.num_leaf_families) return;
    const bool is_leaf = place.leaf_row >= 0;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const auto array = static_cast<PlaceArray>(a);
      const float2 x = places.template floats<float2>(gradient_of(array), p, 2 * lane_of_thread());
      if (is_leaf) {
        const Rows& rows = array == kQ ? call.grad_q : array == kK ? call.grad_k : call.grad_v;
        reinterpret_cast<uint32_t*>(view.row_of_leaf<T>(rows, place.leaf_row))[lane_of_thread()] = pack2<T>(x.x, x.y);
      } else {
        reinterpret_cast<float2*>(call.place_gradient + (3 * view.place_row(p) + a) * kChannels)[lane_of_thread()] = x;
      }
    }
    if (is_leaf || lane_of_thread() != 0) return;
    call.place_mass[view.place_row(p)] = places.number(kMass, p);
    call.place_grad_energy[view.place_row(p)] = places.number(kGradEnergy, p);
  }

  __device__ void run() const {
    const BlockGrove& grove = view.grove;
#pragma unroll 4
    for (int p = warp_of_thread(); p < grove.num_places; p += kPlaceWarps) fill_place(p);
    __syncthreads();
    for (int r = grove.num_rounds - 1; r >= 0; --r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int t = round.tile_begin; t < round.tile_end; ++t) differentiate_tile(view.tile(t));
      __syncthreads();
    }
#pragma unroll 4
    for (int p = warp_of_thread(); p < grove.num_places; p += kPlaceWarps) deliver(p);
  }
};

template <class T>
__global__ void __launch_bounds__(kPlaceWarps * 32, 5)
    grove_places_kernel(const __grid_constant__ Call call, int most_places) {
  const HeadItem item = head_item(call);
  const BlockGrove& grove = call.groves[item.item];
  if (grove.num_places > 0) BackwardPlaces<T>{{call, grove, item.head}, {0, most_places}}.run();
}

// Leaves: each tile for itself.
template <class T>
struct BackwardLeaves {
  GroveView view;
  uint32_t staging;  // of this warp: tiles of q, k, v, grad_out, and three rows from above

  static constexpr int kStagedTiles = 4, kAbove = kStagedTiles * kTileBytes, kWarpMemory = kAbove + 3 * kChannels * 4;
  static constexpr int kMemory = kWarps * kWarpMemory;
  __device__ BackwardLeaves(const Call& call, const BlockGrove& grove, int head)
      : view{call, grove, head}, staging(warp_of_thread() * kWarpMemory) {}

  __device__ const Rows& tensor(int array) const {
    const Call& call = view.call;
    return array == kQ ? call.q : array == kK ? call.k : array == kV ? call.v : call.grad_out;
  }
  __device__ Tile staged(int array) const { return {staging + array * kTileBytes}; }
  __device__ void load(int array, int row, int count) const {
    load_tile<T>(staged(array).high, tensor(array), view.leaf(row), min(count, kRows), view.head);
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
  template <class Sight>
  __device__ void share_with_rows(const RowFamily (&its)[2], const Sight&, PlaceArray array, float (&c)[8][4]) const {
    share(its[0], array, c, 0), share(its[1], array, c, 1);
  }
  // Where all rows are of one family its gradients are staged.
  __device__ void load_above(const TileRows& rows) const {
    const int f = rows.first_family(), place = from_lane(rows.family_place, 0), lane = lane_of_thread();
    const GroveFamily family = place >= 0 ? GroveFamily() : view.family(f);
#pragma unroll
    for (int i = lane; i < 3 * kRows; i += 32) {
      const auto array = static_cast<PlaceArray>(i / kRows);
      const float* from = place >= 0 ? view.call.place_gradient + (3 * view.place_row(place) + array) * kChannels
                                     : root_gradient(view, family, array);
      const uint32_t to = staging + kAbove + 16 * i;
      from ? copy_async16(to, from + 4 * (i % kRows)) : zero16(to);
    }
  }
  __device__ void share_with_rows(const RowFamily (&)[2], const FullSight&, PlaceArray array, float (&c)[8][4]) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 x = shared_at<float2>(staging + kAbove + 4 * (array * kChannels + column_of(n, 0)));
      c[n][0] = c[n][2] = x.x / kRows, c[n][1] = c[n][3] = x.y / kRows;
    }
  }

  // Scores and grad_out · vᵀ become gradients of scores and weights of grad_out.
  __device__ void differentiate_scores(const TileRows&, const FullSight& sight, const RowFamily (&)[2],
                                       const FamilyAbove (&from)[2], float (&s)[2][4], float (&grad_p)[2][4]) const {
    const float offset[2][2] = {};
    float factor[2];
    TileSoftmax softmax;
    softmax.add(sight, 0, offset, view.call.scale, s, factor);
    const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) look(from[h], kRows, gain_of(s, grad_p, h, inverse[h]), looking, h);
    differentiate(looking, inverse, view.call.scale, s, grad_p);
  }
  __device__ void differentiate_scores(const TileRows& rows, const TwigSight& sight, const RowFamily (&its)[2],
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
    differentiate_scores(rows, sight, its, from, s, grad_p);
    // v is no longer needed: results go through its tile
    {
      float c[8][4] = {};
      share_with_rows(its, sight, kV, c);
      add_gradient<T, false, true>(c, grad_p, staged(kGradY));
      store(call.grad_v, tile, kV, c);
    }
    {
      float c[8][4] = {};
      share_with_rows(its, sight, kQ, c);
      add_gradient<T, false, false>(c, s, staged(kK));
      store(call.grad_q, tile, kV, c);
    }
    {
      float c[8][4] = {};
      share_with_rows(its, sight, kK, c);
      add_gradient<T, false, true>(c, s, staged(kQ));
      store(call.grad_k, tile, kV, c);
    }
  }
  __device__ void store(const Rows& rows, const GroveTile& tile, PlaceArray through, const float (&c)[8][4]) const {
    store_tile<T>(rows, view.leaf(tile.row), tile.num_rows, view.head, staged(through).high, c);
  }

  // Rows of a family of several tiles: log-sums are saved, what they pull at is found first (weigh_wide).
  __device__ void weigh_wide(const TileRows& rows) const {
    const Call& call = view.call;
    const GroveTile& tile = rows.tile;
    const RowSight sight(rows, call.is_causal);
    const RowFamily its = family_of_row(rows, 0);  // all rows have the same
    const FamilyAbove from = above(its);
    load(kQ, tile.row, tile.num_rows), load(kGradY, tile.row, tile.num_rows);
    float gain[2] = {0, 0};
    for (int first = 0; first < tile.num_keys; first += kRows) {
      float s[2][4], grad_p[2][4];
      load_keys(tile, first);
      weigh(sight, rows, tile.key + first, s, grad_p);
#pragma unroll
      for (int h = 0; h < 2; ++h) gain[h] += gain_of(s, grad_p, h, 1);
    }
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      look(from, its.size, gain[h], looking, h);
      if (lane_of_thread() % 4 == 0 && row_of(h) < tile.num_rows) {
        call.leaf_pull[view.leaf_row(tile.row + row_of(h))] = looking.pull[h];
      }
    }
  }
  __device__ void load_keys(const GroveTile& tile, int first) const {
    __syncwarp();
    load(kK, tile.key + first, tile.num_keys - first), load(kV, tile.key + first, tile.num_keys - first);
    wait_for_tiles();
  }
  // Weights of the staged rows for the staged keys, and grad_out · v.
  __device__ void weigh(const RowSight& sight, const TileRows& rows, int first_key, float (&p)[2][4],
                        float (&grad_p)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i / 4][i % 4] = grad_p[i / 4][i % 4] = 0;
    add_scores<T, false>(p, staged(kQ), staged(kK));
    add_scores<T, false>(grad_p, staged(kGradY), staged(kV));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= rows.tile.num_rows) continue;
      const LogSum log_sum = view.call.leaf_log_sum[view.leaf_row(rows.tile.row + row_of(h))];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& x = p[n][2 * h + j];
          x = sight.sees(h, n, j, first_key) ? fast_exp2(kLog2E * log_sum.log_weight(view.call.scale * x)) : 0.0f;
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) < rows.tile.num_rows) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) p[i / 2][2 * h + i % 2] = 0;
    }
  }
  __device__ Looking wide_looking(const TileRows& rows, const FamilyAbove& from) const {
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= rows.tile.num_rows) continue;
      looking.reach[h] = from.mass;
      looking.pull[h] = view.call.leaf_pull[view.leaf_row(rows.tile.row + row_of(h))];
    }
    return looking;
  }

  // A tile of a family of several: its rows look at all tiles of keys, then all tiles of rows look at its keys.
  __device__ void differentiate_wide(const TileRows& rows) const {
    const Call& call = view.call;
    const GroveTile& tile = rows.tile;
    const RowSight sight(rows, call.is_causal);
    const RowFamily its[2] = {family_of(rows, 0), family_of(rows, 1)};
    const FamilyAbove from = above(family_of_row(rows, 0));
    const Looking looking = wide_looking(rows, from);
    const float inverse[2] = {1, 1};
    load(kQ, tile.row, tile.num_rows), load(kGradY, tile.row, tile.num_rows);
    float c[8][4] = {};
    share_with_rows(its, sight, kQ, c);
    for (int first = 0; first < tile.num_keys; first += kRows) {
      float s[2][4], grad_p[2][4];
      load_keys(tile, first);
      weigh(sight, rows, tile.key + first, s, grad_p);
      differentiate(looking, inverse, call.scale, s, grad_p);
      add_gradient<T, false, false>(c, s, staged(kK));
    }
    store(call.grad_q, tile, kQ, c);
    __syncwarp();
    load(kK, tile.row, tile.num_rows), load(kV, tile.row, tile.num_rows);
    differentiate_wide_keys<kK>(tile, its, sight, from, call.grad_k);
    differentiate_wide_keys<kV>(tile, its, sight, from, call.grad_v);
  }
  template <PlaceArray kArray>
  __device__ void differentiate_wide_keys(const GroveTile& tile, const RowFamily (&its)[2], const RowSight& sight,
                                          const FamilyAbove& from, const Rows& gradient) const {
    const float inverse[2] = {1, 1};
    float c[8][4] = {};
    share_with_rows(its, sight, kArray, c);
    for (int first = 0; first < tile.num_keys; first += kRows) {
      const GroveTile other = {tile.key + first, min(kRows, tile.num_keys - first), tile.key, tile.num_keys};
      __syncwarp();
      load(kQ, other.row, other.num_rows), load(kGradY, other.row, other.num_rows);
      const TileRows rows = view.leaf_rows(other);
      const Looking looking = wide_looking(rows, from);
      const RowSight its_sight(rows, view.call.is_causal);
      wait_for_tiles();
      float s[2][4], grad_p[2][4];
      weigh(its_sight, rows, tile.row, s, grad_p);
      differentiate(looking, inverse, view.call.scale, s, grad_p);
      add_gradient<T, false, true>(c, kArray == kK ? s : grad_p, staged(kArray == kK ? kQ : kGradY));
    }
    store(gradient, tile, kQ, c);
  }

  __device__ void run(int t) const {
    const GroveTile tile = view.tile(t);
    if (tile.num_keys > kRows) return differentiate_wide(view.leaf_rows(tile));
#pragma unroll
    for (int a = 0; a < kStagedTiles; ++a) load(a, tile.row, tile.num_rows);
    const TileRows rows = view.leaf_rows(tile);
    if (!view.call.is_causal && rows.is_one_family_of_16()) {
      load_above(rows);
      differentiate_tile(rows, FullSight{view.call.include_self});
    } else {
      differentiate_tile(rows, TwigSight(view, rows));
    }
  }
  __device__ void run_wide(int t) const {
    const GroveTile tile = view.tile(t);
    if (tile.num_keys > kRows) weigh_wide(view.leaf_rows(tile));
  }
};

template <class T, bool kWeighWide>
__global__ void __launch_bounds__(kWarps * 32, 3) grove_leaves_kernel(const __grid_constant__ Call call, int chunks) {
  const TileItem item = tile_item(call, chunks);
  const BlockGrove& grove = call.groves[item.grove];
  if (item.tile >= grove.num_leaf_tiles) return;
  const BackwardLeaves<T> leaves(call, grove, item.head);
  kWeighWide ? leaves.run_wide(item.tile) : leaves.run(item.tile);
}

template <class Function>
void with_storage(const AttentionParams& params, const Function& function) {
  params.storage == Storage::bfloat16 ? function.template operator()<__nv_bfloat16>()
                                      : function.template operator()<__half>();
}
int chunks_of(const AttentionParams& params) {
  return static_cast<int>((params.walk.totals.grove_tiles + kWarps - 1) / kWarps);
}
dim3 grid_of(const Call& call, const AttentionParams& params, int chunks = 1) {
  return dim3(static_cast<unsigned>(params.walk.groves.size() * call.heads * chunks));
}

}  // namespace

void groves_sums(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const BlockTotals& totals = params.walk.totals;
  if (totals.grove_places == 0 && params.walk.grove_roots.empty()) return;  // every tree is one family
  const int chunks = chunks_of(params);
  with_storage(params, [&]<class T>() {
    launch(grove_sums_kernel<T>, grid_of(call, params, chunks), kWarps * 32, 0, stream, call, chunks);
    if (totals.grove_places > 0) launch(grove_place_sums_kernel<T>, grid_of(call, params), 32, 0, stream, call);
  });
}

void groves_backward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const BlockTotals& totals = params.walk.totals;
  const auto most_places = static_cast<int>(totals.grove_places);
  const int chunks = chunks_of(params);
  with_storage(params, [&]<class T>() {
    if (most_places > 0) {
      launch(grove_places_kernel<T>, grid_of(call, params), kPlaceWarps * 32,
             BackwardPlaces<T>::Memory::size(most_places), stream, call, most_places);
    }
    const dim3 grid = grid_of(call, params, chunks);
    constexpr size_t memory = BackwardLeaves<T>::kMemory;
    if (totals.has_wide) launch(grove_leaves_kernel<T, true>, grid, kWarps * 32, memory, stream, call, chunks);
    launch(grove_leaves_kernel<T, false>, grid, kWarps * 32, memory, stream, call, chunks);
  });
}

}  // namespace ramify::cuda
