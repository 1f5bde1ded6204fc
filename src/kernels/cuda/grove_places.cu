// Tied queries in groves, backward: places, from the roots of a grove down, after grove_sums.cu (docs/algorithm.md,
// section 4; docs/kernels.md).
#include "kernels/cuda/grove_gradient.cuh"

namespace ramify::cuda {
namespace {

constexpr int kPlaceWarps = 4;

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
    float s[2][4] = {}, grad_p[2][4] = {}, offset[2][2];
    log_sizes(rows, offset);
    add_scores<T, true>(s, places.tile(kQ, tile), places.tile(kK, tile));
    add_scores<T, true>(grad_p, places.tile(kGradY, tile), places.tile(kV, tile));
    TileSoftmax softmax;
    softmax.take(sight, tile.row, offset, view.call.scale, s);
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

}  // namespace

void groves_places(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const auto most_places = static_cast<int>(params.walk.totals.grove_places);
  if (most_places == 0) return;
  with_storage(params, [&]<class T>() {
    launch(grove_places_kernel<T>, grid_of(call, params), kPlaceWarps * 32,
           BackwardPlaces<T>::Memory::size(most_places), stream, call, most_places);
  });
}

}  // namespace ramify::cuda
