// Moving rows between a level (or the leaves) and batches of its families. Row tensors are [H, rows, ...].
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "ops/plan_tensors.h"

namespace ramify::composed {

// Where the rows of one part belong: consecutive from `begin`, or wherever `index` says.
struct Destination {
  int64_t begin = -1;
  int64_t count = 0;
  at::Tensor index;  // [count] int64, looked at when begin < 0; one past the last row drops a row
};

// Puts parts that were computed out of order back into order.
class RowOrder {
 public:
  explicit RowOrder(int64_t rows) : rows_(rows) {}

  void add(Destination destination) { destinations_.push_back(std::move(destination)); }

  // parts[i] [H, count_i, ...] goes where destination i says. Rows that no part has are taken from
  // `background` [H, rows, ...]; without it the parts must cover all rows.
  // Of one RowOrder either all calls have a background or none.
  at::Tensor restore(std::vector<at::Tensor> parts, const at::Tensor& background = {}) const;

 private:
  at::Tensor restore_consecutive(const std::vector<at::Tensor>& parts, const at::Tensor& background) const;
  at::Tensor source_of_rows(bool with_background, at::Device device) const;

  int64_t rows_;
  std::vector<Destination> destinations_;
  mutable at::Tensor source_;  // found at the first restore
};

// One batch of families, with the places of its children and queries worked out on the device.
class BatchRows {
 public:
  BatchRows(const PlanView& plan, const PlanLevel& level, const FamilyBatch& batch);

  int64_t families() const { return batch_.families; }

  at::Tensor take_children(const at::Tensor& level_rows) const;  // [H, n, ...] -> [H, F, B, ...]
  at::Tensor take_queries(const at::Tensor& query_rows) const;   // [H, n, ...] -> [H, F, Q, ...]
  at::Tensor take_parents(const at::Tensor& upper_rows) const;   // [H, n, ...] of the level above -> [H, F, ...]

  Destination parents() const;               // of [F] results, on the level above
  Destination children(int64_t rows) const;  // of flattened [F, B] results, on the level; padding is dropped
  Destination queries(int64_t rows) const;   // of flattened [F, Q] results, likewise

  at::Tensor sizes(at::ScalarType dtype) const;  // [F, B]: leaves below each child, 0 for padding
  at::Tensor child_numbers() const;              // [F, B]: 0, 1, ... in every family
  at::Tensor last_leaf() const;                  // [F, B]: the last leaf below each child, counted in its family
  at::Tensor child_of_leaf() const;              // [F, Q]: the child above each leaf, where queries are leaves
  at::Tensor family_depth() const;               // [F]: original depth of the parent

 private:
  at::Tensor family_field(int64_t field) const;  // [F, 1]
  at::Tensor padding(int64_t count_field, int64_t width) const;
  at::Tensor places(int64_t first_field, int64_t count_field, int64_t width) const;
  at::Tensor node_field(int64_t field) const;  // [F, B]
  Destination destination(int64_t begin, const at::Tensor& places, int64_t count_field, int64_t width,
                          int64_t rows) const;

  FamilyBatch batch_;
  at::Tensor family_rows_;                  // [F, fields of FamilyRow]
  at::Tensor node_rows_;                    // [n, fields of NodeRow], the level's
  at::Tensor child_places_, query_places_;  // [F·B], [F·Q]; undefined where they are consecutive
};

// One level of all trees.
class Level {
 public:
  // `families_below` are the batches of the next level, whose parents are this one's inner nodes.
  Level(const PlanView& plan, const PlanLevel& shape, const std::vector<BatchRows>& families_below);

  const PlanLevel& shape() const { return shape_; }
  const std::vector<BatchRows>& batches() const { return batches_; }  // families whose children are on this level

  // The level's rows, from those of its leaves and from what its inner nodes got from their families: [H, F,
  // ...] for each batch below, in order.
  at::Tensor rows(const at::Tensor& leaf_rows, std::vector<at::Tensor> family_parts) const;

  // The other way: the rows of this level's leaves, and where they belong among all `num_leaves`.
  at::Tensor take_leaves(const at::Tensor& level_rows) const;
  Destination leaves(int64_t num_leaves) const;

 private:
  PlanLevel shape_;
  std::vector<BatchRows> batches_;
  at::Tensor leaf_numbers_, leaf_places_;  // of this level's leaves: among all leaves, in the level
  RowOrder order_;                         // of leaves first, then families
};

// Rows of all leaves [H, T, ...] or of all nodes [H, nodes, ...] as one part a level. In one step rather than
// level by level, so that the gradient too is gathered once, however deep the trees are.
std::vector<at::Tensor> leaves_by_level(const at::Tensor& leaf_rows, const PlanView& plan);
std::vector<at::Tensor> nodes_by_level(const at::Tensor& node_rows, const PlanView& plan);

// Rows of [H, F, B, ...] picked by [F, Q] -> [H, F, Q, ...]
at::Tensor pick_children(const at::Tensor& children, const at::Tensor& index);

// For each child of [H, F, B, ...] the sum over those before it.
at::Tensor sums_before(const at::Tensor& children);

// The summary of a family: the mean of its children, weighted by their leaves. [H, F, B, ...] -> [H, F, ...]
at::Tensor weighted_mean(const at::Tensor& children, const at::Tensor& sizes);

}  // namespace ramify::composed
