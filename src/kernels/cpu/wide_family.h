// The steps of a wide family with tied queries: tiles of its children, and folds of what they found. Tiles are
// independent of each other, so threads can share them.
#pragma once

#include "kernels/cpu/block_attention.h"

namespace ramify::cpu {

// Children [tile · kKeyBlock, (tile + 1) · kKeyBlock) of a node.
struct WideTile {
  int64_t node = 0;
  int64_t tile = 0;
};
inline int64_t num_wide_tiles(const WalkNode& node) {
  return (node.num_children + kKeyBlock - 1) / kKeyBlock;
}

// Bottom-up: a and g of a tile's children; then gates, e and means of the parent from all of them.
void wide_attend(const Call& call, WideTile tile, HeadRange heads, Scratch& scratch);
void wide_fold(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Top-down: y and π of a tile's children.
void wide_down(const Call& call, WideTile tile, HeadRange heads, Scratch& scratch);

// Backward, bottom-up: π̄ and the sum of grad_out of the parent.
void wide_backward_fold(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Backward, top-down: first what every child gets from above, then gradients of a tile's children as queries, then as
// keys.
void wide_backward_gates(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
void wide_backward_queries(const Call& call, WideTile tile, HeadRange heads, Scratch& scratch);
void wide_backward_keys(const Call& call, WideTile tile, HeadRange heads, Scratch& scratch);

}  // namespace ramify::cpu
