// Rows of tables of vectors, and gradients that have only the rows that were taken.
#pragma once

#include <ATen/core/Tensor.h>

#include "ramify/options.h"

namespace ramify {

// table [n, width], ids [m] int64 -> [m, width]
at::Tensor table_rows(const at::Tensor& table, const at::Tensor& ids, TableGradient gradient);

// Whether the table's gradient will be sparse: rows are asked for, and there is a kernel for it.
bool has_row_gradient(const at::Tensor& table, TableGradient gradient);

// A sparse gradient whose rows may come in any order, and repeatedly, as torch makes it of several: ascending, each
// once.
at::Tensor in_row_order(const at::Tensor& gradient);

// One step of AdamW, in place, where the gradient is sparse and in row order; rows without gradient have 0.
struct AdamWRates {
  double rate = 0, beta1 = 0, beta2 = 0, weight_decay = 0, epsilon = 0;
  double step = 1;  // from 1
};
void adamw_rows_(const at::Tensor& table, const at::Tensor& mean, const at::Tensor& square, const at::Tensor& gradient,
                 const AdamWRates& rates);

}  // namespace ramify
