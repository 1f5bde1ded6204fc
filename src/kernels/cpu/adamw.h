// One step of AdamW for a table most of whose rows have no gradient: it counts as 0 there, and is not read.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/attention.h"

namespace ramify::cpu {

struct AdamWTable {
  int64_t rows = 0, width = 0;
  float* values = nullptr;  // [rows, width], as the moments
  float* mean = nullptr;
  float* square = nullptr;
  std::span<const int64_t> gradient_rows;  // ascending, each once
  const float* gradient = nullptr;         // [gradient_rows, width]
};

// With mean' = mean + mean_rate (gradient - mean), square' = square_rest · square + square_rate · gradient²:
//   value' = rest · value - rate · mean' / (root_scale · sqrt(square') + epsilon)
struct AdamWStep {
  float rest = 1, rate = 0, mean_rate = 0, square_rest = 0, square_rate = 0, root_scale = 1, epsilon = 0;
};

void adamw_rows(const AdamWTable& table, const AdamWStep& step, const Threads& threads);

}  // namespace ramify::cpu
