// Global pooling: one row for every range of leaves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "ramify/nn/encoder.h"

namespace ramify::nn {

// begin, end [n] int64: ranges over the leaves of the batch. -> [n, width]: the mean over each, or the row of the
// leaf that stands for it (counted from its end if negative, the nearest where the range is shorter); zeros for an
// empty one.
at::Tensor pool_ranges(const Encoding& encoding, const at::Tensor& begin, const at::Tensor& end,
                       std::optional<int64_t> leaf);

}  // namespace ramify::nn
