// Untied queries that look to the left only, or through an exact window (docs/algorithm.md, section 6), without
// positions: one thread takes a tree and some heads from the first leaf to the last.
#pragma once

#include "kernels/cpu/layout.h"

namespace ramify::cpu {

// Whether these steps, not those of untied_attention.h, run a call.
bool is_swept(const AttentionParams& params);

// Of the tree below a root that is not a leaf: means of inner nodes, outputs and log-sums.
void sweep_forward(const Call& call, int64_t root, HeadRange heads, Scratch& scratch);
// All gradients of the tree; sums of means are zero before.
void sweep_backward(const Call& call, int64_t root, HeadRange heads, Scratch& scratch);

}  // namespace ramify::cpu
