// Plans (hierarchy/plan.h) as tensors, so that the op can take them, and the way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "hierarchy/plan.h"
#include "hierarchy/walk.h"

namespace ramify {

// A vector's memory as a tensor that owns it; nothing is copied.
at::Tensor own_as_tensor(std::vector<int64_t> values);

// Ten tensors: [0] what the plan is for, levels and batches, on the CPU, since the host walks them; [1] families, [2]
// leaves and [3] nodes as one row an entry, on the device, since only kernels look at them; [4] the walk of the CPU
// kernels, or of those for CUDA what the host needs, on the CPU; [5] to [8] no numbers, but a length, since tracing
// knows shapes only and must tell how much forward saves: inner nodes, crown slots, weights and wide members of the
// CPU's walk, or slots of the walks for CUDA, without and with groves; [9] the walks for CUDA on the device, nothing
// for the CPU.
std::vector<at::Tensor> to_tensors(const Forest& forest, Queries queries, at::Device device);

// Throws unless these are ten such tensors, made for `queries` over a forest of `num_nodes` nodes.
void check_plan(const std::vector<at::Tensor>& tensors, Queries queries, int64_t num_nodes);

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

// The walk in a plan; it points into the tensor.
WalkView walk_view(const std::vector<at::Tensor>& tensors);

// The values of an int64 vector on the CPU; anything else is the caller's mistake.
std::span<const int64_t> integers(const at::Tensor& tensor, const char* name);

// The forest behind first_child, level_begin and tree_begin, checked; and its arrays as tensors that share its memory.
Forest forest_from(at::TensorList arrays);
struct ForestArrays {
  at::Tensor first_child, level_begin, tree_begin, leaf_nodes, first_leaf;
};
ForestArrays arrays_of(const Forest& forest);

}  // namespace ramify
