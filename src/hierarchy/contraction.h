// A forest without chains of only children. Such chains change no result (docs/algorithm.md, section 3: a
// node alone in its family passes its child through), so kernels run on the contracted forest, whose every
// inner node has at least two children.
#pragma once

#include <cstdint>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

struct Contraction {
  Forest forest;             // leaves and trees keep their numbers
  std::vector<int64_t> top;  // [nodes of forest]: topmost original node of the chain that a node stands for.
                             // Towards its siblings the node has that one's position.
};

Contraction contract(const Forest& forest);

}  // namespace ramify
