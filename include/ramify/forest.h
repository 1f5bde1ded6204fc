// A batch of ragged trees: the one structure that every layer, head and step shares.
//
// Nodes are numbered level by level from the roots, trees in order, left to right. So a level is a
// contiguous range and so are the children of a node:
//
//     tree 0       tree 1          node          0  1 | 2  3  4  5 | 6  7
//       0            1             first_child   2  4   6  8  8  8   8  8   (and 8 at the end)
//      / \          / \            level_begin   0, 2, 6, 8
//     2   3        4   5           tree_begin    0, 1, 2
//    / \                           leaf_nodes    6, 7, 3, 4, 5     (leaf number -> node)
//   6   7                          first_leaf    0  3 | 0  2  3  4 | 0  1
//
// Leaves are numbered left to right, as tokens arrive; they may sit at any depth. An empty tree has no
// node at all: tree_begin repeats. A bare leaf is a root without children.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ramify {

inline constexpr int64_t kMaxLeaves = int64_t{1} << 31;

// Immutable. Copies share the arrays, so they cost nothing.
class Forest {
 public:
  // A batch of no trees.
  Forest();

  // Takes over a forest in the form drawn above. Throws std::invalid_argument, naming the node, unless every
  // node but the roots has exactly one parent, levels follow each other without gap, and every tree has one
  // root or none.
  static Forest from_arrays(std::vector<int64_t> first_child, std::vector<int64_t> level_begin,
                            std::vector<int64_t> tree_begin);

  int64_t num_trees() const;
  int64_t num_nodes() const;
  int64_t num_leaves() const;
  int64_t num_levels() const;
  // Edges from the root to the deepest leaf; 0 for bare leaves and for a forest without nodes.
  int64_t depth() const;

  std::span<const int64_t> first_child() const;  // [num_nodes + 1]: children of n are [n], ..., [n + 1] - 1
  std::span<const int64_t> level_begin() const;  // [num_levels + 1]
  std::span<const int64_t> tree_begin() const;   // [num_trees + 1]: offsets into the roots
  std::span<const int64_t> leaf_nodes() const;   // [num_leaves]: node of each leaf
  std::span<const int64_t> first_leaf() const;   // [num_nodes]: leftmost leaf below a node; its own number for a leaf

  int64_t num_children(int64_t node) const { return first_child()[node + 1] - first_child()[node]; }
  bool is_leaf(int64_t node) const { return num_children(node) == 0; }

  // Derived arrays, computed anew at each call in linear time.
  std::vector<int64_t> parents() const;          // [num_nodes]: -1 for a root
  std::vector<int64_t> sibling_index() const;    // [num_nodes]: place inside the family, 0 for a root
  std::vector<int64_t> leaf_counts() const;      // [num_nodes]
  std::vector<int64_t> tree_leaf_begin() const;  // [num_trees + 1]: leaves of tree t are [t], ..., [t + 1] - 1

 private:
  struct Arrays;
  explicit Forest(std::shared_ptr<const Arrays> arrays) : arrays_(std::move(arrays)) {}
  friend class ForestWriter;

  std::shared_ptr<const Arrays> arrays_;
};

}  // namespace ramify
