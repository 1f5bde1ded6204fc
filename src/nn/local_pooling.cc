#include "nn/local_pooling.h"

#include <ATen/ops/from_blob.h>

#include <map>

#include "nn/rows.h"
#include "ramify/coarsen.h"

namespace ramify::nn {
namespace {

template <class Number>
at::Tensor tensor_of(const std::vector<Number>& values, at::Device device) {
  const auto type = c10::CppTypeToScalarType<Number>::value;
  const auto size = static_cast<int64_t>(values.size());
  const at::Tensor view = at::from_blob(const_cast<Number*>(values.data()), {size}, at::TensorOptions(type));
  return view.to(at::TensorOptions(type).device(device), /*non_blocking=*/false, /*copy=*/true);
}

// The kind of every leaf.
std::vector<size_t> kinds_of(const std::vector<LeafRows>& parts, int64_t num_leaves) {
  std::vector<size_t> kinds(num_leaves, parts.empty() ? 0 : parts[0].kind);
  for (const LeafRows& part : parts) {
    if (!part.leaves.defined()) continue;
    const at::Tensor leaves = part.leaves.cpu().contiguous();
    const int64_t* leaf = leaves.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < leaves.numel(); ++i) kinds[leaf[i]] = part.kind;
  }
  return kinds;
}

// Parts without rows, from the kind of every leaf.
std::vector<LeafRows> parts_of(const std::vector<size_t>& kinds, at::Device device) {
  std::map<size_t, std::vector<int64_t>> leaves;
  for (size_t i = 0; i < kinds.size(); ++i) leaves[kinds[i]].push_back(static_cast<int64_t>(i));
  std::vector<LeafRows> parts;
  for (const auto& [kind, numbers] : leaves) {
    parts.push_back({kind, at::Tensor(), leaves.size() == 1 ? at::Tensor() : tensor_of(numbers, device)});
  }
  return parts;
}

// Kinds behind pooling: a leaf that was one before keeps its kind, unless all leaves were merged.
std::vector<size_t> coarse_kinds(const LayerState& state, const CoarseForest& coarse, LocalPooling::Kind how,
                                 size_t pooled) {
  std::vector<size_t> kinds(coarse.forest.num_leaves(), pooled);
  if (how == LocalPooling::Kind::merge) return kinds;
  const Forest& forest = state.forest.forest();
  const std::vector<size_t> old_kinds = kinds_of(state.leaves, forest.num_leaves());
  for (int64_t i = 0; i < coarse.forest.num_leaves(); ++i) {
    const int64_t old = coarse.node[coarse.forest.leaf_nodes()[i]];
    if (forest.is_leaf(old)) kinds[i] = old_kinds[forest.first_leaf()[old]];
  }
  return kinds;
}

// Old leaves as groups that make the new ones, weighted by the leaves of the batch that they hold; counts follow.
Groups groups_of(const CoarseForest& coarse, std::vector<float>& count, at::Device device) {
  if (count.empty()) count.assign(coarse.leaf.size(), 1);
  std::vector<float> new_count(coarse.forest.num_leaves(), 0), weight(coarse.leaf.size());
  std::vector<int64_t> member(coarse.leaf.size()), begin(coarse.forest.num_leaves() + 1, 0);
  for (size_t i = 0; i < coarse.leaf.size(); ++i) {
    member[i] = static_cast<int64_t>(i);
    begin[coarse.leaf[i] + 1] = static_cast<int64_t>(i) + 1;
    new_count[coarse.leaf[i]] += count[i];
  }
  for (size_t i = 0; i < coarse.leaf.size(); ++i) weight[i] = count[i] / new_count[coarse.leaf[i]];
  count = std::move(new_count);
  return {tensor_of(member, device), tensor_of(begin, device), tensor_of(weight, device)};
}

}  // namespace

void take_apart(LayerState& state) {
  if (state.leaves.size() == 1) {
    state.leaves[0].rows = state.rows;
    return;
  }
  std::vector<at::Tensor> leaves;
  for (const LeafRows& part : state.leaves) leaves.push_back(part.leaves);
  const std::vector<at::Tensor> parts = take_apart(state.rows, leaves);
  for (size_t p = 0; p < parts.size(); ++p) state.leaves[p].rows = parts[p];
}

void pool(LayerState& state, const LocalPooling& pooling, size_t pooled) {
  const at::Device device = state.rows.device();
  const Forest& forest = state.forest.forest();
  const bool merges = pooling.kind == LocalPooling::Kind::merge;
  const CoarseForest coarse = merges ? merge_leaves(forest, pooling.group) : collapse_leaves(forest);

  std::vector<LeafRows> parts = parts_of(coarse_kinds(state, coarse, pooling.kind, pooled), device);
  state.rows = group_means(state.rows, groups_of(coarse, state.leaf_count, device));
  const at::Tensor leaf = tensor_of(coarse.leaf, device);
  state.leaf = state.leaf.defined() ? leaf.index_select(0, state.leaf) : leaf;
  if (state.positions.index.defined()) {
    state.positions.index = state.positions.index.index_select(0, tensor_of(coarse.node, device));
  }
  state.forest = ForestTensors(coarse.forest, state.forest.device());
  state.leaves = std::move(parts);
}

}  // namespace ramify::nn
