// Coarser forests, for pooling between layers: leaves become fewer, what stands above them stays as it is.
// Linear, and nothing recurses over depth.
#pragma once

#include <cstdint>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

struct CoarseForest {
  Forest forest;
  std::vector<int64_t> node;  // [new nodes]: the old node that each continues; of merged leaves the first
  std::vector<int64_t> leaf;  // [old leaves]: the new leaf that holds each; ascending without gaps
};

// Every family whose children are all leaves collapses into its parent, which becomes a leaf. Leaves with a sibling
// that is no leaf, and bare leaves, stay:
//
//       .                  .
//     / | \              / | \      .
//    .  2  .      ->    0  1  .
//   / \    | \                | \   .
//   0 1    3  .               2  3
//            / \                      leaf: 0 0 1 2 3 3
//            4 5
CoarseForest collapse_leaves(const Forest& forest);

// Neighbouring leaves of a family merge in groups of `group`, from the left of each run of leaves; the last group of a
// run may be smaller. Throws std::invalid_argument unless group is at least 1.
CoarseForest merge_leaves(const Forest& forest, int64_t group);

}  // namespace ramify
