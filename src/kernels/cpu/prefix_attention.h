// causal=prefix with tied queries (docs/algorithm.md, section 5): one thread takes a tree and some heads from the first leaf
// to the last, and back.
#pragma once

#include "kernels/cpu/layout.h"

namespace ramify::cpu {

// Of the tree below a root that is not a leaf: means of inner nodes, t of all nodes, outputs and the energy.
void prefix_forward(const Call& call, int64_t root, HeadRange heads, Scratch& scratch);
// All gradients of the tree; sums of means are zero before.
void prefix_backward(const Call& call, int64_t root, HeadRange heads, Scratch& scratch);

}  // namespace ramify::cpu
