// The steps of a wide family with tied queries: tiles of its children, and folds of what they found. Tiles are
// independent of each other, so threads can share them.
#pragma once

#include <algorithm>

#include "kernels/cpu/block_attention.h"

namespace ramify::cpu {

// One of the tiles that the children of a node are cut into, kWideTile each; fewer, in whole blocks, where threads
// would have less than eight tiles to share.
struct WideTile {
  int64_t node = 0;
  int64_t tile = 0;
};
inline int64_t wide_tile_size(const WalkNode& node) {
  const int64_t blocks = (node.num_children + 8 * kKeyBlock - 1) / (8 * kKeyBlock);
  return std::min(blocks * kKeyBlock, kWideTile);
}
inline int64_t num_wide_tiles(const WalkNode& node) {
  return (node.num_children + wide_tile_size(node) - 1) / wide_tile_size(node);
}
// Two of its tiles.
struct WidePair {
  int64_t node = 0;
  int64_t keys = 0;
  int64_t queries = 0;
};

// Bottom-up: a and g of a tile's children; then gates, e and means of the parent from all of them.
void wide_attend(const Call& call, WideTile tile, HeadRange heads, Scratch& scratch);
void wide_fold(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Top-down: y and π of a tile's children.
void wide_down(const Call& call, WideTile tile, HeadRange heads, Scratch& scratch);

// Backward, bottom-up: π̄ and the sum of grad_out of the parent.
void wide_backward_fold(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
// Backward, top-down: first what every child gets from above; then gradients of one tile as keys and of another as
// queries that look at them, added to what other pairs gave (a tile and itself come first); when all pairs are done,
// what is left to do about these sums. Pairs without a tile in common, neither as keys nor as queries, are independent.
void wide_backward_gates(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);
void wide_backward_pair(const Call& call, WidePair pair, HeadRange heads, Scratch& scratch);
void wide_backward_finish(const Call& call, int64_t node, HeadRange heads, Scratch& scratch);

}  // namespace ramify::cpu
