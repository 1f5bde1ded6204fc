// Plans (hierarchy/plan.h) as tensors, so that the op can take them, and the way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "hierarchy/plan.h"

namespace ramify {

// A vector's memory as a tensor that owns it; nothing is copied.
at::Tensor own_as_tensor(std::vector<int64_t> values);

// Four tensors: [0] levels and batches, on the CPU, since the host walks them; [1] families, [2] leaves and
// [3] nodes as one row an entry, on the device, since only kernels look at them.
std::vector<at::Tensor> to_tensors(Plan plan, at::Device device);

// Columns of the three tables: the fields of FamilyRow, LeafRow and NodeRow.
enum FamilyColumn { kFamilyParent, kFamilyFirstSlot, kFamilyNumSlots, kFamilyFirstQuery, kFamilyNumQueries };
enum LeafColumn { kLeafNumber, kLeafPlace, kLeafPositionNode };
enum NodeColumn { kNodeSize, kNodeFirstLeaf, kNodePositionNode, kNodeFamilyDepth };

// What an implementation reads of those.
struct PlanView {
  explicit PlanView(const std::vector<at::Tensor>& tensors);

  std::vector<PlanLevel> levels;
  std::vector<FamilyBatch> batches;
  at::Tensor families, leaves, nodes;
};

// The checked forest behind the op's arrays.
Forest forest_from(const std::vector<at::Tensor>& arrays);

}  // namespace ramify
