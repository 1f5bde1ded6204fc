#include "ops/composed/rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>

namespace ramify::composed {
namespace {

// [H, n, ...] -> [H, F, width, ...]
at::Tensor split_rows(const at::Tensor& rows, int64_t families, int64_t width) {
  return rows.unflatten(1, {families, width});
}

at::Tensor take(const at::Tensor& rows, int64_t begin, int64_t count, const at::Tensor& places) {
  return begin >= 0 ? rows.narrow(1, begin, count) : rows.index_select(1, places);
}

}  // namespace

at::Tensor RowOrder::restore(std::vector<at::Tensor> parts, const at::Tensor& background) const {
  const bool consecutive = std::all_of(destinations_.begin(), destinations_.end(),
                                       [](const Destination& d) { return d.begin >= 0 || d.count == 0; });
  if (consecutive) return restore_consecutive(parts, background);
  if (background.defined()) parts.push_back(background);
  if (!source_.defined()) source_ = source_of_rows(background.defined(), parts[0].device());
  return at::cat(parts, 1).index_select(1, source_);
}

at::Tensor RowOrder::restore_consecutive(const std::vector<at::Tensor>& parts, const at::Tensor& background) const {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return destinations_[a].begin < destinations_[b].begin; });
  std::vector<at::Tensor> pieces;
  int64_t end = 0;
  const auto fill_up_to = [&](int64_t begin) {
    if (begin > end) pieces.push_back(background.narrow(1, end, begin - end));
  };
  for (const size_t i : order) {
    if (destinations_[i].count == 0) continue;
    fill_up_to(destinations_[i].begin);
    pieces.push_back(parts[i]);
    end = destinations_[i].begin + destinations_[i].count;
  }
  fill_up_to(rows_);
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, 1);
}

// For each row, where it stands when all parts and the background are put one after the other.
at::Tensor RowOrder::source_of_rows(bool with_background, at::Device device) const {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  int64_t total = 0;
  for (const Destination& d : destinations_) total += d.count;
  at::Tensor source = with_background ? at::arange(total, total + rows_ + 1, options) : at::empty({rows_ + 1}, options);
  int64_t begin = 0;
  for (const Destination& d : destinations_) {
    const at::Tensor stands = at::arange(begin, begin + d.count, options);
    if (d.begin >= 0) {
      source.narrow(0, d.begin, d.count).copy_(stands);
    } else {
      source.index_copy_(0, d.index, stands);
    }
    begin += d.count;
  }
  return source.narrow(0, 0, rows_);
}

BatchRows::BatchRows(const PlanView& plan, const PlanLevel& level, const FamilyBatch& batch)
    : batch_(batch),
      family_rows_(plan.families.narrow(0, batch.family_begin, batch.families)),
      node_rows_(plan.nodes.narrow(0, level.node_begin, level.num_nodes)) {
  if (batch.slot_begin < 0) child_places_ = places(kFamilyFirstSlot, kFamilyNumSlots, batch.width);
  if (batch.query_begin < 0) query_places_ = places(kFamilyFirstQuery, kFamilyNumQueries, batch.queries);
}

at::Tensor BatchRows::family_field(int64_t field) const {
  return family_rows_.select(1, field).unsqueeze(1);
}

// Padding repeats the last row of its own family, so whatever it holds (a NaN, say) stays within one tree.
at::Tensor BatchRows::places(int64_t first_field, int64_t count_field, int64_t width) const {
  const at::Tensor numbers = at::arange(width, family_rows_.options());
  return (family_field(first_field) + at::minimum(numbers, family_field(count_field) - 1)).flatten();
}

at::Tensor BatchRows::padding(int64_t count_field, int64_t width) const {
  return at::arange(width, family_rows_.options()) >= family_field(count_field);
}

at::Tensor BatchRows::take_children(const at::Tensor& level_rows) const {
  const int64_t count = batch_.families * batch_.width;
  return split_rows(take(level_rows, batch_.slot_begin, count, child_places_), batch_.families, batch_.width);
}

at::Tensor BatchRows::take_queries(const at::Tensor& query_rows) const {
  const int64_t count = batch_.families * batch_.queries;
  return split_rows(take(query_rows, batch_.query_begin, count, query_places_), batch_.families, batch_.queries);
}

at::Tensor BatchRows::take_parents(const at::Tensor& upper_rows) const {
  return take(upper_rows, batch_.parent_begin, batch_.families, family_rows_.select(1, kFamilyParent));
}

Destination BatchRows::parents() const {
  return {batch_.parent_begin, batch_.families, family_rows_.select(1, kFamilyParent)};
}

Destination BatchRows::destination(int64_t begin, const at::Tensor& places, int64_t count_field, int64_t width,
                                   int64_t rows) const {
  Destination result = {begin, batch_.families * width, {}};
  if (begin < 0) result.index = places.masked_fill(padding(count_field, width).flatten(), rows);
  return result;
}

Destination BatchRows::children(int64_t rows) const {
  return destination(batch_.slot_begin, child_places_, kFamilyNumSlots, batch_.width, rows);
}

Destination BatchRows::queries(int64_t rows) const {
  return destination(batch_.query_begin, query_places_, kFamilyNumQueries, batch_.queries, rows);
}

at::Tensor BatchRows::node_field(int64_t field) const {
  return take_children(node_rows_.select(1, field).unsqueeze(0)).squeeze(0);
}

at::Tensor BatchRows::sizes(at::ScalarType dtype) const {
  at::Tensor sizes = node_field(kNodeSize).to(dtype);
  return batch_.slot_begin >= 0 ? sizes : sizes.masked_fill(padding(kFamilyNumSlots, batch_.width), 0);
}

at::Tensor BatchRows::child_numbers() const {
  return at::arange(batch_.width, family_rows_.options()).expand({batch_.families, batch_.width});
}

at::Tensor BatchRows::last_leaf() const {
  const at::Tensor first = node_field(kNodeFirstLeaf);
  return first + node_field(kNodeSize) - 1 - first.narrow(1, 0, 1);
}

at::Tensor BatchRows::child_of_leaf() const {
  const at::Tensor numbers = at::arange(batch_.queries, family_rows_.options());
  const at::Tensor leaves = at::minimum(numbers, family_field(kFamilyNumQueries) - 1);
  return at::searchsorted(last_leaf().contiguous(), leaves.contiguous());
}

at::Tensor BatchRows::family_depth() const {
  return node_field(kNodeFamilyDepth).select(1, 0);
}

Level::Level(const PlanView& plan, const PlanLevel& shape, const std::vector<BatchRows>& families_below)
    : shape_(shape), order_(shape.num_nodes) {
  for (int64_t b = shape.batch_begin; b < shape.batch_end; ++b) batches_.emplace_back(plan, shape, plan.batches[b]);
  const at::Tensor leaf_rows = plan.leaves.narrow(0, shape.leaf_begin, shape.num_leaves);
  leaf_numbers_ = leaf_rows.select(1, kLeafNumber);
  leaf_places_ = leaf_rows.select(1, kLeafPlace);
  order_.add({shape.num_leaves == shape.num_nodes ? 0 : -1, shape.num_leaves, leaf_places_});
  for (const BatchRows& batch : families_below) order_.add(batch.parents());
}

at::Tensor Level::rows(const at::Tensor& leaf_rows, std::vector<at::Tensor> family_parts) const {
  family_parts.insert(family_parts.begin(), leaf_rows);
  return order_.restore(std::move(family_parts));
}

at::Tensor Level::take_leaves(const at::Tensor& level_rows) const {
  return shape_.num_leaves == shape_.num_nodes ? level_rows : level_rows.index_select(1, leaf_places_);
}

Destination Level::leaves(int64_t num_leaves) const {
  return {shape_.num_leaves == num_leaves ? 0 : -1, shape_.num_leaves, leaf_numbers_};
}

std::vector<at::Tensor> leaves_by_level(const at::Tensor& leaf_rows, const PlanView& plan) {
  std::vector<int64_t> sizes;
  for (const PlanLevel& level : plan.levels) sizes.push_back(level.num_leaves);
  const bool one_level = std::count(sizes.begin(), sizes.end(), 0) + 1 == static_cast<int64_t>(sizes.size());
  const at::Tensor ordered = one_level ? leaf_rows : leaf_rows.index_select(1, plan.leaves.select(1, kLeafNumber));
  return ordered.split_with_sizes(sizes, 1);
}

std::vector<at::Tensor> nodes_by_level(const at::Tensor& node_rows, const PlanView& plan) {
  std::vector<int64_t> sizes;
  for (const PlanLevel& level : plan.levels) sizes.push_back(level.num_nodes);
  return node_rows.split_with_sizes(sizes, 1);
}

at::Tensor pick_children(const at::Tensor& children, const at::Tensor& index) {
  std::vector<int64_t> shape(children.dim(), 1), expanded = children.sizes().vec();
  shape[1] = index.size(0), shape[2] = expanded[2] = index.size(1);
  return children.gather(2, index.view(shape).expand(expanded));
}

at::Tensor sums_before(const at::Tensor& children) {
  const at::Tensor nothing = at::zeros_like(children.narrow(2, 0, 1));
  return at::cat({nothing, children.narrow(2, 0, children.size(2) - 1).cumsum(2)}, 2);
}

at::Tensor weighted_mean(const at::Tensor& children, const at::Tensor& sizes) {
  at::Tensor shares = (sizes / sizes.sum(-1, /*keepdim=*/true)).unsqueeze(0);
  if (children.dim() == 4) shares = shares.unsqueeze(-1);
  return (children * shares).sum(2);
}

}  // namespace ramify::composed
