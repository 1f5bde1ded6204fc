// Rows that belong to leaves: parts of all kinds put into leaf order and taken apart again, and means over groups.
// Differentiable; each costs one pass over the rows, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ramify::nn {

// parts[p] [n_p, ...] are the rows of leaves[p] [n_p]; together they hold every leaf once. -> [T, ...] in leaf order.
at::Tensor interleave(const std::vector<at::Tensor>& parts, const std::vector<at::Tensor>& leaves);

// The inverse: rows [T, ...] -> parts.
std::vector<at::Tensor> take_apart(const at::Tensor& rows, const std::vector<at::Tensor>& leaves);

// Groups of rows: group g holds rows[member[begin[g]]], ..., rows[member[begin[g + 1] - 1]].
struct Groups {
  at::Tensor member;  // int64
  at::Tensor begin;   // [groups + 1] int64
  at::Tensor weight;  // a weight a member, that sum to 1 in a group; undefined: all the same
};

// Means of [T, width] over groups, zeros for an empty one: [groups, width]. Every group is summed by itself, so it does
// not matter what else is there.
at::Tensor group_means(const at::Tensor& rows, const Groups& groups);

}  // namespace ramify::nn
