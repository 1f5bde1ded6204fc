// The learning rate of a step: linear warm-up to the full rate, then linear decay to zero.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ramify::train {

// The factor of the rate at `step` (from 0) of `total` steps, of which the first `warmup` rise.
inline double schedule_factor(int64_t step, int64_t warmup, int64_t total) {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (total <= warmup) return 1;
  return std::max(0.0, static_cast<double>(total - step) / static_cast<double>(total - warmup));
}

}  // namespace ramify::train
