// Registers the builders of forests with torch, as ops on int64 vectors, for callers that have no C++.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/plan_tensors.h"
#include "ops/problem.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

using Tensors = std::vector<at::Tensor>;

// The five arrays every Forest keeps, then whatever else the builder gives.
Tensors tensors_of(const Forest& forest, Tensors more = {}) {
  const ForestArrays arrays = arrays_of(forest);
  Tensors tensors = {arrays.first_child, arrays.level_begin, arrays.tree_begin, arrays.leaf_nodes, arrays.first_leaf};
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

Tensors windows_op(const at::Tensor& lengths, std::string_view branching) {
  return tensors_of(windows(integers(lengths, "lengths"), Branching::parse(branching)));
}

Tensors grid_windows_op(const at::Tensor& rows, const at::Tensor& columns, std::string_view branching) {
  const auto row_counts = integers(rows, "rows"), column_counts = integers(columns, "columns");
  TORCH_CHECK_VALUE(row_counts.size() == column_counts.size(), "grid_windows: ", row_counts.size(), " row counts, ",
                    column_counts.size(), " column counts");
  std::vector<GridShape> grids;
  for (size_t g = 0; g < row_counts.size(); ++g) grids.push_back({row_counts[g], column_counts[g]});
  GridForest result = grid_windows(grids, GridBranching::parse(branching));
  return tensors_of(result.forest, {own_as_tensor(std::move(result.raster_index))});
}

Tensors from_segments_op(at::TensorList levels) {
  std::vector<std::vector<int64_t>> lengths;
  for (const at::Tensor& level : levels) {
    const auto values = integers(level, "segment lengths");
    lengths.emplace_back(values.begin(), values.end());
  }
  return tensors_of(from_segments(lengths));
}

Tensors from_nested_op(const at::Tensor& preorder) {
  return tensors_of(from_nested(integers(preorder, "preorder")));
}

Tensors from_parents_op(const at::Tensor& parents) {
  ParentForest result = from_parents(integers(parents, "parents"));
  return tensors_of(result.forest, {own_as_tensor(std::move(result.node_of_input))});
}

// Three arrays a forest, one forest after the other.
Tensors concatenate_op(at::TensorList arrays) {
  TORCH_CHECK_VALUE(arrays.size() % 3 == 0, "concatenate: expected first_child, level_begin, tree_begin a forest");
  std::vector<Forest> forests;
  for (size_t i = 0; i < arrays.size(); i += 3) forests.push_back(forest_from(arrays.slice(i, 3)));
  return tensors_of(concatenate(forests));
}

Tensors from_arrays_op(const at::Tensor& first_child, const at::Tensor& level_begin, const at::Tensor& tree_begin) {
  return tensors_of(forest_from({first_child, level_begin, tree_begin}));
}

at::Tensor forest_field_op(at::TensorList arrays, std::string_view name) {
  const Forest forest = forest_from(arrays);
  if (name == "parents") return own_as_tensor(forest.parents());
  if (name == "sibling_index") return own_as_tensor(forest.sibling_index());
  if (name == "leaf_counts") return own_as_tensor(forest.leaf_counts());
  TORCH_CHECK_VALUE(name == "tree_leaf_begin", "forest: no field ", name);
  return own_as_tensor(forest.tree_leaf_begin());
}

Tensors plan_op(at::TensorList arrays, std::string_view tie, std::string_view causal,
                std::optional<at::Device> device) {
  return to_tensors(forest_from(arrays), queries_of(tie_from(tie), causal_from(causal)), device.value_or(at::kCPU));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ramify, m) {
  m.def("windows(Tensor lengths, str branching) -> Tensor[]", windows_op);
  m.def("grid_windows(Tensor rows, Tensor columns, str branching) -> Tensor[]", grid_windows_op);
  m.def("from_segments(Tensor[] levels) -> Tensor[]", from_segments_op);
  m.def("from_nested(Tensor preorder) -> Tensor[]", from_nested_op);
  m.def("from_parents(Tensor parents) -> Tensor[]", from_parents_op);
  m.def("concatenate(Tensor[] arrays) -> Tensor[]", concatenate_op);
  m.def("from_arrays(Tensor first_child, Tensor level_begin, Tensor tree_begin) -> Tensor[]", from_arrays_op);
  m.def("forest_field(Tensor[] arrays, str name) -> Tensor");
  m.def("plan(Tensor[] arrays, str tie, str causal, Device? device=None) -> Tensor[]", plan_op);
}

// Its shape is known without a look at the values, so it can be traced; the builders cannot.
TORCH_LIBRARY_IMPL(ramify, CompositeExplicitAutograd, m) {
  m.impl("forest_field", forest_field_op);
}

}  // namespace ramify
