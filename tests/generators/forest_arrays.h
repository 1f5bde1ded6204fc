// Arrays of forests as vectors, for comparison and for printing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ramify/forest.h"

namespace ramify::testing {

using Array = std::vector<int64_t>;

inline Array copy(std::span<const int64_t> values) {
  return {values.begin(), values.end()};
}

inline bool equal(const Forest& a, const Forest& b) {
  return copy(a.first_child()) == copy(b.first_child()) && copy(a.tree_begin()) == copy(b.tree_begin());
}

}  // namespace ramify::testing
