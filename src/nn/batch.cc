#include "ramify/nn/batch.h"

namespace ramify::nn {
namespace {

at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() ? tensor.to(device, /*non_blocking=*/true) : tensor;
}

}  // namespace

Batch Batch::to(at::Device device) const {
  Batch result{forest.device() == device ? forest : ForestTensors(forest.forest(), device), {}, {}};
  for (const LeafInput& input : leaves) {
    result.leaves.push_back({moved(input.leaf, device), moved(input.id, device), moved(input.value, device)});
  }
  const PositionInput& p = positions;
  result.positions = {moved(p.keys, device),   moved(p.key_token_begin, device), moved(p.key_tokens, device),
                      moved(p.places, device), moved(p.cells, device),           moved(p.graph, device),
                      moved(p.index, device)};
  return result;
}

}  // namespace ramify::nn
