// The walks of the CUDA kernels (hierarchy/block_walk.h) as tensors, and the way back.
#pragma once

#include <ATen/core/Tensor.h>

#include "hierarchy/block_walk.h"

namespace ramify {

enum class WalkKind { without_groves, with_groves };

struct BlockWalkTensors {
  at::Tensor host;    // sizes, and what the host walks, of both kinds
  at::Tensor device;  // the tables of both, and of each root its tree
  int64_t num_slots[2];
  // of the kind with groves: places, and the leaves of which forward saves what rounding left: all or none
  int64_t num_places, num_rests;
};
BlockWalkTensors block_walk_tensors(const Forest& forest, at::Device device);

// Throws unless both belong together.
void check_block_walks(const at::Tensor& host, const at::Tensor& device);

// They point into the tensors.
BlockWalkView block_walk_view(const at::Tensor& host, const at::Tensor& device, WalkKind kind);
at::Tensor trees_of_roots(const at::Tensor& host, const at::Tensor& device);

}  // namespace ramify
