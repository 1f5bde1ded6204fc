// Tied queries in groves, backward: places, from the roots of a grove down, after grove_sums.cu: a block for a grove
// and head, a warp for a tile. Rounds leave each other what they found in global memory (docs/algorithm.md, section 4;
// docs/kernels.md).
#include "kernels/cuda/grove_gradient.cuh"
#include "kernels/cuda/place_tables.cuh"

namespace ramify::cuda {
namespace {

template <class T>
struct BackwardPlaces {
  static constexpr int kParts = 3;  // gradients of q, k and v

  GroveView view;
  PlaceTables tables;
  int num_stages;
  PlaceTeam<kParts> team = {};  // of the round
  uint32_t staging = 0;         // of this team: means of q, k, v and grad_out, split

  static constexpr int kStageMemory = 4 * 2 * kTileBytes;
  static __host__ __device__ uint32_t block_memory(int most_places) {
    return (PlaceTables::size(most_places) + kRowBytes - 1) / kRowBytes * kRowBytes;
  }
  __device__ BackwardPlaces(const Call& call, const BlockGrove& grove, int head, int most_places, int count)
      : view{call, grove, head}, tables{grove, 0, most_places}, num_stages(count) {}
  __device__ void begin(const GroveRound& round) {
    team = PlaceTeam<kParts>(round, num_stages);
    staging = block_memory(tables.most) + team.index() * kStageMemory;
  }

  __device__ Tile staged(int array) const {
    const uint32_t high = staging + 2 * array * kTileBytes;
    return {high, high + kTileBytes};
  }

  // A row and its family, pi and the gradient of e of that, and pi of the grove's root.
  struct Row {
    GrovePlace place;
    GroveFamily family;
    FamilyAbove from;
    float root_mass = 1, energy = 0, inner_gain = 0;
  };
  __device__ Row row_at(int p) const {
    const Call& call = view.call;
    Row row;
    row.place = tables.place(p), row.family = tables.family(row.place.family);
    const int64_t own = view.place_row(p);
    row.energy = call.place_energy[own], row.inner_gain = call.place_inner_gain[own];
    if (row.family.place < 0) {
      row.from = root_above(view, row.family), row.root_mass = row.from.mass;
    } else {
      const int64_t above = view.place_row(row.family.place);
      row.from = {call.place_mass[above], call.place_grad_energy[above]}, row.root_mass = call.place_root_mass[above];
    }
    return row;
  }

  __device__ void load(const GroveTile& tile) const {
#pragma unroll 1
    for (int i = team.part(); i < 8; i += team.size) {
      uint32_t* rows = i < 6 ? view.call.place_mean : view.call.place_grad_y;
      load_part<T>(view, staging + i * kTileBytes, tile, rows, i < 6 ? 6 : 2, i < 6 ? i : i - 6);
    }
    wait_for_tiles();
  }
  // All warps of a team find the gradients of scores.
  __device__ void differentiate(const GroveTile& tile) const {
    const Call& call = view.call;
    const TileRows rows = view.place_rows(tile, tables);
    const RowSight sight(rows, call.is_causal);
    float s[2][4] = {}, grad_p[2][4] = {}, offset[2][2];
    log_sizes(rows, offset);
    add_scores<T, true>(s, staged(kQ), staged(kK));
    add_scores<T, true>(grad_p, staged(kGradY), staged(kV));
    TileSoftmax softmax;
    softmax.take(sight, tile.row, offset, call.scale, s);
    const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
    Looking looking;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float gain = gain_of(s, grad_p, h, inverse[h]);
      if (row_of(h) >= tile.num_rows) continue;
      const int p = tile.row + row_of(h);
      const Row row = row_at(p);
      const Gates gates(row.energy, softmax.log_sum(h));
      const auto size = static_cast<float>(row.place.size);
      const float mass = row.from.mass;
      const float grad_total = size * fast_inverse(static_cast<float>(row.family.size)) * row.from.grad_energy;
      gain *= size;  // rows hold means of grad_out
      const float delta = gates.given * (row.root_mass * row.inner_gain - mass * gates.kept * gain);
      looking.pull[h] = gates.given * grad_total - delta - mass * gates.given * gain;
      looking.reach[h] = mass * gates.given * size;
      if (team.part() != 0 || lane_of_thread() % 4 != 0) continue;
      const int64_t own = view.place_row(p);
      call.place_grad_energy[own] = delta + gates.kept * grad_total;
      call.place_mass[own] = mass * gates.kept, call.place_root_mass[own] = row.root_mass;
    }
    cuda::differentiate(looking, inverse, call.scale, s, grad_p);
#pragma unroll 1
    for (int array = team.part(); array < kParts; array += team.size) {
      if (array == kQ) put_gradient<false>(tile, kQ, s, kK);
      if (array == kK) put_gradient<true>(tile, kK, s, kQ);
      if (array == kV) put_gradient<true>(tile, kV, grad_p, kGradY);
    }
  }
  // The gradient of the means of an array: what the tile gives, and each row's share of what its family's mean got.
  // That of a leaf goes to its tensor.
  template <bool kTranspose>
  __device__ void put_gradient(const GroveTile& tile, PlaceArray array, const float (&weights)[2][4],
                               PlaceArray of) const {
    const Call& call = view.call;
    float c[8][4] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      const GrovePlace place = tables.place(tile.row + row_of(h));
      const GroveFamily family = tables.family(place.family);
      const float* from = family.place >= 0 ? gradient_row(family.place, array) : root_gradient(view, family, array);
      if (!from) continue;
      const float part = static_cast<float>(place.size) * fast_inverse(static_cast<float>(family.size));
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 x = *reinterpret_cast<const float2*>(from + column_of(n, 0));
        c[n][2 * h] = part * x.x, c[n][2 * h + 1] = part * x.y;
      }
    }
    add_gradient<T, true, kTranspose>(c, weights, staged(of));
    const Rows& leaves = array == kQ ? call.grad_q : array == kK ? call.grad_k : call.grad_v;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row_of(h) >= tile.num_rows) continue;
      const int p = tile.row + row_of(h), leaf = tables.place(p).leaf_row;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 x = make_float2(c[n][2 * h], c[n][2 * h + 1]);
        if (leaf >= 0) {
          *reinterpret_cast<uint32_t*>(view.row_of_leaf<T>(leaves, leaf) + column_of(n, 0)) = pack2<T>(x.x, x.y);
        } else {
          *reinterpret_cast<float2*>(gradient_row(p, array) + column_of(n, 0)) = x;
        }
      }
    }
  }
  __device__ float* gradient_row(int place, PlaceArray array) const {
    return view.call.place_gradient + (3 * view.place_row(place) + array) * kChannels;
  }

  __device__ void run() {
    tables.load(view.call);
    wait_for_kernels_before();
    wait_for_tiles();
    __syncthreads();
#pragma unroll 1
    for (int r = view.grove.num_rounds - 1; r >= 0; --r) {
      const GroveRound round = tables.round(r);
      begin(round);
      team.for_tiles(
          round, [&](int t) { load(tables.tile(t)); }, [&](int t) { differentiate(tables.tile(t)); });
    }
  }
};

template <class T, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kPlaceBlocksAtOnce<kWarps>)
    grove_places_kernel(const __grid_constant__ Call call, int most_places, int num_stages) {
  const HeadItem item = head_item(call);
  const BlockGrove& grove = call.groves[item.item];
  if (grove.num_places == 0) return wait_for_kernels_before();
  BackwardPlaces<T>(call, grove, item.head, most_places, num_stages).run();
}

}  // namespace

void groves_places(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const auto most_places = static_cast<int>(params.walk.totals.grove_places);
  if (most_places == 0) return;
  with_place_blocks(params, [&]<class T, int kWarps>() {
    using Work = BackwardPlaces<T>;
    const PlaceStages<kWarps> stages(params, Work::block_memory(most_places), Work::kStageMemory);
    launch(grove_places_kernel<T, kWarps>, grid_of_groves(call, params), kWarps * 32, stages.memory, stream, call,
           most_places, stages.count);
  });
}

}  // namespace ramify::cuda
