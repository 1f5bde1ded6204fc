// The places of groves, forward, for themselves, after the leaves.
#include "kernels/cuda/grove_places_forward.cuh"

namespace ramify::cuda {
namespace {

template <class T, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kPlaceBlocksAtOnce<kWarps>)
    grove_places_forward_kernel(const __grid_constant__ Call call, int most_places, int num_stages) {
  const HeadItem item = head_item(call);
  const BlockGrove& grove = call.groves[item.item];
  if (grove.num_places == 0) return wait_for_kernels_before();
  using Work = ForwardPlaces<T>;
  Work places({call, grove, item.head}, {most_places, 0, Work::block_memory(most_places), num_stages});
  places.tables.load(call);
  wait_for_kernels_before();
  wait_for_tiles();
  __syncthreads();
  places.rise();
  places.descend(0);
}

}  // namespace

void groves_places_forward(const Call& call, const AttentionParams& params, cudaStream_t stream) {
  const auto most_places = static_cast<int>(params.walk.totals.grove_places);
  if (most_places == 0) return;
  with_place_blocks(params, [&]<class T, int kWarps>() {
    using Work = ForwardPlaces<T>;
    const PlaceStages<kWarps> stages(params, Work::block_memory(most_places), Work::kStageMemory);
    launch(grove_places_forward_kernel<T, kWarps>, grid_of_groves(call, params), kWarps * 32, stages.memory, stream,
           call, most_places, stages.count);
  });
}

}  // namespace ramify::cuda
