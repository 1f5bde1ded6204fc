// Ways to make a Forest. Every builder is linear, recurses over nothing, and throws std::invalid_argument
// with one message when its input is not a forest; then nothing half-built survives.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

// Group sizes from the bottom up: (2, 4, 8) puts 2 leaves into each group, 4 of those into each larger one,
// ...
struct Branching {
  std::vector<int64_t> sizes;
  bool repeat_last = false;  // repeat the last size until one family is left

  // Reads `2,4,8,16`, `16*` or `4,16*`; a star repeats the last size.
  static Branching parse(std::string_view text);
};

// One tree a length. Each level groups neighbours from the left; the last group may be short. Grouping stops
// when a single node is left; what remains above the last size is one family under the root. For 7 leaves and
// `3,2`:
//
//        .            leaves 0-6, groups of 3: (0 1 2) (3 4 5) (6), groups of 2 of these, and the root
//      /   \          over the two that remain.
//     .     .
//    / \    |
//   .   .   .
//  /|\ /|\  |
//  012 345  6
//
// Length 0 is an empty tree, length 1 a bare leaf.
Forest windows(std::span<const int64_t> lengths, const Branching& branching);

struct GridShape {
  int64_t rows = 0;
  int64_t columns = 0;
};

struct GridForest {
  Forest forest;
  std::vector<int64_t> raster_index;  // [num_leaves]: where leaf i stands when all grids are read row by row
};

// Reads `2x2,4x4` or `4x4*`; `4` means `4x4`.
struct GridBranching {
  std::vector<GridShape> sizes;
  bool repeat_last = false;

  static GridBranching parse(std::string_view text);
};

// One tree a grid of patches: windows of rows x columns, grouped again into windows, as `windows` does in one
// dimension. Leaves follow the windows, so inputs in raster order are permuted by `raster_index` first:
//
//   raster   0 1 2 3     windows of 2x2   leaves 0 1 | 2 3     raster_index
//            4 5 6 7                             4 5 | 6 7     0 1 4 5  2 3 6 7
GridForest grid_windows(std::span<const GridShape> grids, const GridBranching& branching);

// A segmentation of the caller's own, from the bottom up: levels[0] holds the leaves of each segment,
// levels[1] how many of those segments make each larger one, and so on. The segments of the last level are
// the trees:
//
//   {{2, 3, 1}, {2, 1}}   two documents; the first has sentences of 2 and 3 words, the second one of 1 word
//
// Only trees may be empty (0 in the last level).
Forest from_segments(std::span<const std::vector<int64_t>> levels);

// Nested lists, written depth first: the number of items of each list, kItem for whatever is not a list.
// Items of the outermost sequence are the trees: `[[a, [b, c]], d, []]` is {2, kItem, 2, kItem, kItem, kItem,
// 0}. An empty list is an empty tree; inside a tree it is rejected.
inline constexpr int64_t kItem = -1;
Forest from_nested(std::span<const int64_t> preorder);

struct ParentForest {
  Forest forest;
  std::vector<int64_t> node_of_input;  // [n]: the forest's number for each input node
};

// parents[i] is the parent of node i, -1 for a root. Trees and siblings keep the order of the input.
ParentForest from_parents(std::span<const int64_t> parents);

// The trees of all forests, in order.
Forest concatenate(std::span<const Forest> forests);

}  // namespace ramify
