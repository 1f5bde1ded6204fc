// Tied queries in groves, backward, the way up (docs/algorithm.md, section 4; docs/kernels.md). With y and pi as they
// are inside a grove, where its root has y = 0 and pi = 1, and out likewise,
//     pi(C) · grad_pi(C) = sum over the leaves below C of grad_out · (out - y(C)),
// so no weights are needed: families' sums of grad_out and of grad_out · out do, with out = y + pi · a(leaf) from what
// was saved, since the result itself is rounded.
#include "kernels/cuda/grove_gradient.cuh"
#include "kernels/cuda/place_tables.cuh"

namespace ramify::cuda {
namespace {

template <class T>
struct SumsOfGrove {
  GroveView view;

  // y and pi of a family inside the grove.
  struct FamilyValue {
    float2 y;
    float mass;
  };
  __device__ float2 y_of(int place) const {
    return reinterpret_cast<const float2*>(view.call.place_y + view.place_row(place) * kChannels)[lane_of_thread()];
  }
  __device__ FamilyValue family_value(int place) const {
    if (place < 0) return {make_float2(0, 0), 1};
    return {y_of(place), view.call.place_local_mass[view.place_row(place)]};
  }
  // Of a family of `size` leaves: `gain` is the sum of grad_out · a(leaf), over all lanes.
  __device__ void deliver_leaves(int f, int place, int size, float2 sum, float gain, const FamilyValue& its) const {
    const float inner = warp_sum(its.mass * gain);
    deliver(f, place, size, sum, inner, inner + warp_sum(its.y.x * sum.x + its.y.y * sum.y));
  }
  __device__ void deliver(int f, int place, int size, float2 sum, float inner, float dot) const {
    const Call& call = view.call;
    if (place >= 0) {
      const float inverse = fast_inverse(static_cast<float>(size));  // a mean: float16 ends at 65504
      set_place(place, make_float2(inverse * sum.x, inverse * sum.y), inner, dot);
      return;
    }
    const GroveFamily family = view.family(f);
    if (!GroveView::is_tree(family)) {
      const int64_t row = view.slot_row(family);
      reinterpret_cast<float2*>(call.grad_y + row * kChannels)[lane_of_thread()] = sum;
      if (lane_of_thread() == 0) call.inner_gain[row] = call.mass[row] * dot;
    }
  }
  __device__ void set_place(int place, float2 grad_y, float inner, float dot) const {
    const int64_t row = view.place_row(place);
    write_split<T>(view.call.place_grad_y, row, grad_y);
    if (lane_of_thread() == 0) view.call.place_inner_gain[row] = inner, view.call.place_dot[row] = dot;
  }

  // A tile that is one family or twig of 16, or all tiles of a wide family: eight channels of four rows a lane. Of a
  // wide one the gains of the rows are kept for grove_leaves.cu.
  template <bool kIsWide>
  __device__ void sum_family_of_leaves(const TileRows& rows) const {
    constexpr int kParts = kIsWide ? 2 : 4;  // of four rows, at once
    const Call& call = view.call;
    const int lane = lane_of_thread(), place = from_lane(rows.family_place, 0), num_rows = rows.tile.num_keys;
    const int64_t leaf = view.leaf(rows.tile.row);
    const T* grad = lane_chunk<T>(call.grad_out, leaf, view.head);
    const T* value = lane_chunk<T>(call.value, leaf, view.head);
    const T* rest = kIsWide ? lane_chunk<T>(call.value_rest, leaf, view.head) : nullptr;
    const FamilyValue its = family_value(place);
    float sum[8] = {}, gain = 0;
    for (int first = 0; first < (kIsWide ? num_rows : kRows); first += 4 * kParts) {
      uint4 x[kParts], a[kParts], b[kParts];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        x[i] = a[i] = b[i] = make_uint4(0, 0, 0, 0);
        const int row = first + lane / 8 + 4 * i;
        if (kIsWide && row >= num_rows) continue;
        x[i] = *reinterpret_cast<const uint4*>(grad + (first + 4 * i) * call.grad_out.row_stride);
        a[i] = __ldcs(reinterpret_cast<const uint4*>(value + (first + 4 * i) * call.value.row_stride));
        if (kIsWide) b[i] = *reinterpret_cast<const uint4*>(rest + (first + 4 * i) * call.value.row_stride);
      }
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        float row_gain = 0;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float2 g = unpack2<T>((&x[i].x)[w]), v = unpack2<T>((&a[i].x)[w]);
          sum[2 * w] += g.x, sum[2 * w + 1] += g.y;
          row_gain += g.x * v.x + g.y * v.y;
          if constexpr (kIsWide) {
            const float2 more = unpack2<T>((&b[i].x)[w]);
            row_gain += g.x * more.x + g.y * more.y;
          }
        }
        gain += row_gain;
        if constexpr (kIsWide) {
#pragma unroll
          for (int step = 1; step < 8; step *= 2) row_gain += __shfl_xor_sync(0xffffffffu, row_gain, step);
          const int row = first + lane / 8 + 4 * i;
          if (lane % 8 == 0 && row < num_rows) call.leaf_pull[view.leaf_row(rows.tile.row + row)] = row_gain;
        }
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
    deliver_leaves(rows.first_family(), place, kIsWide ? num_rows : kRows, own, gain, its);
  }
  __device__ void sum_tile(const TileRows& rows) const {
    const GroveTile& tile = rows.tile;
    const auto is_last = rows.family >= 0 && rows.end() == tile.row + lane_of_thread() + 1;
    const unsigned ends = __ballot_sync(0xffffffffu, is_last);
    // a tile has mostly two families: theirs come with the rows
    const int first_place = from_lane(rows.family_place, 0), last_row = tile.num_rows - 1;
    const FamilyValue of_first = family_value(first_place);
    const FamilyValue of_last = family_value(from_lane(rows.family_place, last_row));
    uint32_t grad[kRows], value[kRows];
    const T* from = view.row_of_leaf<T>(view.call.grad_out, tile.row) + 2 * lane_of_thread();
    const T* from_value = view.row_of_leaf<T>(view.call.value, tile.row) + 2 * lane_of_thread();
    const int64_t step = view.call.grad_out.row_stride, value_step = view.call.value.row_stride;
#pragma unroll
    for (int r = 0; r < kRows; ++r, from += step, from_value += value_step) {
      grad[r] = value[r] = 0;
      if (r >= tile.num_rows) continue;
      grad[r] = *reinterpret_cast<const uint32_t*>(from);
      value[r] = __ldcs(reinterpret_cast<const uint32_t*>(from_value));
    }
    float2 sum = make_float2(0, 0);
    float gain = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      add(unpack2<T>(grad[r]), unpack2<T>(value[r]), sum, gain);
      if ((ends >> r & 1) == 0) continue;
      const int place = from_lane(rows.family_place, r), size = from_lane(rows.end() - rows.begin(), r);
      const FamilyValue its = r == last_row ? of_last : place == first_place ? of_first : family_value(place);
      deliver_leaves(from_lane(rows.family, r), place, size, sum, gain, its);
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
    if (tile.num_keys > kRows) {
      if (tile.row == tile.key) sum_family_of_leaves<true>(rows);
    } else {
      rows.is_one_twig_of_16() ? sum_family_of_leaves<false>(rows) : sum_tile(rows);
    }
  }
  // The families above them, a warp each.
  __device__ void sum_places() const {
    const BlockGrove& grove = view.grove;
    for (int r = 0; r < grove.num_rounds; ++r) {
      const GroveRound round = view.call.grove_rounds[grove.round_begin + r];
      for (int f = round.family_begin + warp_of_thread(); f < round.family_end; f += warps_of_block()) sum_family(f);
      __syncthreads();
    }
  }
  // Lanes have a child each, of at most 16, then two channels of all.
  __device__ void sum_family(int f) const {
    const GroveFamily family = view.family(f);
    const int lane = lane_of_thread(), count = family.end - family.begin;
    const GrovePlace own = lane < count ? view.place(family.begin + lane) : GrovePlace();
    float dot = 0;
    if (lane < count && own.leaf_row < 0) dot = view.call.place_dot[view.place_row(family.begin + lane)];
    uint32_t high[kRows], low[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int leaf = from_lane(static_cast<int>(own.leaf_row), i);
      high[i] = low[i] = 0;
      if (i >= count) continue;
      const uint32_t* row = view.call.place_grad_y + view.place_row(family.begin + i) * kChannels;
      if (leaf >= 0) row = reinterpret_cast<const uint32_t*>(view.row_of_leaf<T>(view.call.grad_out, leaf));
      high[i] = row[lane];
      if (leaf < 0) low[i] = row[lane + kChannels / 2];
    }
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float2 a = unpack2<T>(high[i]), b = unpack2<T>(low[i]);
      const auto size = static_cast<float>(from_lane(own.size, i));
      sum.x += size * (a.x + b.x), sum.y += size * (a.y + b.y);
    }
    const unsigned leaves = __ballot_sync(0xffffffffu, own.leaf_row >= 0);
#pragma unroll 1
    for (int i = 0; leaves >> i != 0; ++i) {
      if ((leaves >> i & 1) == 0) continue;
      const float2 y = y_of(family.begin + i), x = view.leaf_pair<T>(view.call.grad_out, from_lane(own.leaf_row, i));
      dot += y.x * x.x + y.y * x.y;
      set_place(family.begin + i, x, 0, 0);
    }
    dot = warp_sum(dot);
    const float2 y = family.place >= 0 ? y_of(family.place) : make_float2(0, 0);
    deliver(f, family.place, family.size, sum, dot - warp_sum(y.x * sum.x + y.y * sum.y), dot);
  }
};

template <class T>
__global__ void __launch_bounds__(512, 2) grove_sums_kernel(const __grid_constant__ Call call) {
  wait_for_kernels_before();
  const WarpTile own(call);
  const BlockGrove& grove = call.groves[own.block.grove];
  const bool is_needed = grove.num_places > 0 || !grove.is_whole || own.block.has_wide;
  if (own.is_there() && is_needed) SumsOfGrove<T>{{call, grove, own.head}}.sum_leaves(own.tile(call));
}
template <class T>
__global__ void __launch_bounds__(512) grove_place_sums_kernel(const __grid_constant__ Call call) {
  const HeadItem item = head_item(call);
  const SumsOfGrove<T> sums{{call, call.groves[item.item], item.head}};
  wait_for_kernels_before();
  sums.sum_places();
}

}  // namespace

void groves_sums(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const BlockTotals& totals = params.walk.totals;
  if (!totals.has_above && !totals.has_wide) return;  // every tree is a twig
  with_storage(params, [&]<class T>() {
    launch(grove_sums_kernel<T>, grid_of_tiles(call, params), static_cast<int>(totals.block_tiles) * 32, 0, stream,
           call);
  });
  if (totals.grove_places == 0) return;
  with_place_blocks(params, [&]<class T, int kWarps>() {
    launch(grove_place_sums_kernel<T>, grid_of_groves(call, params), kWarps * 32, 0, stream, call);
  });
}

}  // namespace ramify::cuda
