// The steps of attention with tied queries, each for some heads.
// Which step runs when, and on which thread, is attention.cc's matter.
#pragma once

#include "kernels/cpu/layout.h"

namespace ramify::cpu {

// From the leaves of a grove to its roots; a grove of whole trees is finished, out and energy included.
void grove_up(const Call& call, const Grove& grove, HeadRange heads, Scratch& scratch);
void grove_down(const Call& call, const Grove& grove, HeadRange heads, Scratch& scratch);
// One narrow family of the crown.
void crown_up(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
void crown_down(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);

// A tree of one leaf: it sees itself or nothing.
void bare_leaf(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);

// The same for gradients: the adjoint of down goes up, the adjoint of up goes down.
void grove_backward_up(const Call& call, const Grove& grove, HeadRange heads, Scratch& scratch);
void grove_backward_down(const Call& call, const Grove& grove, HeadRange heads, Scratch& scratch);
void crown_backward_up(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
void crown_backward_down(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
void bare_leaf_backward(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);

}  // namespace ramify::cpu
