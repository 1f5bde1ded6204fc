#include "nn/range_pooling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "nn/range_means.h"
#include "nn/rows.h"

namespace ramify::nn {
namespace {

void check(const at::Tensor& begin, const at::Tensor& end, int64_t num_leaves) {
  TORCH_CHECK_VALUE(begin.dim() == 1 && begin.sizes() == end.sizes() && begin.scalar_type() == at::kLong &&
                        end.scalar_type() == at::kLong,
                    "model: leaf_begin and leaf_end have shapes ", begin.sizes(), " and ", end.sizes(),
                    "; expected two int64 vectors of one length");
  if (!begin.is_cpu() || !end.is_cpu() || begin.numel() == 0) return;  // elsewhere a look would wait for the device
  TORCH_CHECK_VALUE((begin >= 0).logical_and(begin <= end).logical_and(end <= num_leaves).all().item<bool>(),
                    "model: a range of leaves is not within 0 and ", num_leaves);
}

// The leaves of all ranges, one after the other, without a loop over ranges. Where ranges follow each other without gap
// these are just all leaves.
Groups leaves_of_ranges(const at::Tensor& begin, const at::Tensor& end) {
  const at::Tensor counts = end - begin;
  const at::Tensor offsets = at::constant_pad_nd(counts.cumsum(0), {1, 0});
  const int64_t total = offsets[-1].item<int64_t>();
  const at::Tensor shift = at::repeat_interleave(begin - offsets.narrow(0, 0, begin.size(0)), counts, 0, total);
  return {at::arange(total, begin.options()) + shift, offsets, at::Tensor()};
}

}  // namespace

at::Tensor pool_ranges(const Encoding& encoding, const at::Tensor& begin, const at::Tensor& end,
                       std::optional<int64_t> leaf) {
  const at::Tensor& rows = encoding.leaves;
  const auto num_leaves = encoding.leaf.defined() ? encoding.leaf.size(0) : rows.size(0);
  check(begin, end, num_leaves);
  const auto row_of = [&](const at::Tensor& leaves) {
    const at::Tensor there = leaves.to(rows.device());
    return encoding.leaf.defined() ? encoding.leaf.index_select(0, there) : there;
  };
  if (!leaf && !encoding.leaf.defined() && has_range_means(rows, begin, end)) return range_means(rows, begin, end);
  if (!leaf) {
    Groups groups = leaves_of_ranges(begin, end);
    groups.member = row_of(groups.member), groups.begin = groups.begin.to(rows.device());
    return group_means(rows, groups);
  }
  if (num_leaves == 0) return at::zeros({begin.size(0), rows.size(1)}, rows.options());
  const at::Tensor wanted = *leaf >= 0 ? at::minimum(begin + *leaf, end - 1) : at::maximum(end + *leaf, begin);
  const at::Tensor empty = (begin == end).to(rows.device()).unsqueeze(1);
  return rows.index_select(0, row_of(wanted.clamp(0, num_leaves - 1))).masked_fill(empty, 0);
}

}  // namespace ramify::nn
