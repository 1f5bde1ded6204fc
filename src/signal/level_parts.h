// The order of a batch's nodes: level by level, in each level record by record.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "signal/signal.h"

namespace ramify::signal {

// Calls visit(tree, first, last) with the nodes [first, last) that each record has in each level.
template <class Visit>
void for_each_level_part(std::span<const Signal* const> signals, const Visit& visit) {
  std::vector<size_t> open(signals.size());  // trees that reach the level
  for (size_t t = 0; t < signals.size(); ++t) open[t] = t;
  for (size_t level = 0; !open.empty(); ++level) {
    std::erase_if(open, [&](size_t t) { return level + 1 >= signals[t]->level_begin.size(); });
    for (const size_t t : open) {
      visit(t, static_cast<size_t>(signals[t]->level_begin[level]),
            static_cast<size_t>(signals[t]->level_begin[level + 1]));
    }
  }
}

}  // namespace ramify::signal
