// Means over ranges of rows that follow each other, in one pass forward and one backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace ramify::nn {

// Whether they are float32 on the CPU, and the ranges are there, too, in order and apart from each other.
bool has_range_means(const at::Tensor& rows, const at::Tensor& begin, const at::Tensor& end);

// rows [T, width], begin and end [n] int64 -> [n, width]; 0 for empty ranges.
at::Tensor range_means(const at::Tensor& rows, const at::Tensor& begin, const at::Tensor& end);

}  // namespace ramify::nn
