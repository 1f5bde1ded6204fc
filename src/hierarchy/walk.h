// The order of work for fused kernels, which walk a forest family by family instead of level by level.
//
// Subtrees of at most kGroveLeaves leaves are *groves*: one thread takes a run of neighbouring ones from the leaves to
// their roots and, on the way back, down again, so that what lies between stays in its cache. What is above them is the
// *crown*, walked level by level: few nodes, unless trees are very uneven. Its lower nodes are *boughs* with the groves
// below them: where threads can share them evenly, one takes a bough with its groves, while their rows are still near.
//
//              o              crown      more than kGroveLeaves leaves below
//            /   \ .
//           o     o           crown      boughs: at most kBoughLeaves leaves below
//          / \   / \ .
//         #   # #   #         roots of groves: the crown sees them as its leaves
//        /|\ /| |\ /|\        groves
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

inline constexpr int64_t kGroveLeaves = 64;
inline constexpr int64_t kBoughLeaves = 256;
// Families up to this size keep their weights, b² numbers a head; wider ones are tiled and computed again when needed.
inline constexpr int64_t kNarrowFamily = 64;
// Subtrees up to this size, *twigs*, may be done as one family of all their leaves: they have room for its weights,
// within which lie those of their own families for whoever walks these.
inline constexpr int64_t kTwigLeaves = 16;

// A node of the contracted forest (contraction.h).
struct WalkNode {
  int64_t first_child = 0;  // for a leaf: where its children would be
  int64_t num_children = 0;
  int64_t size = 0;        // leaves below it
  int64_t first_leaf = 0;  // its own number for a leaf
  int64_t parent = -1;
  int64_t inner = -1;   // its place among the inner nodes
  int64_t slot = -1;    // of an inner node: where its row lies, among the crown's or among its grove's
  int64_t weights = 0;  // where its family's weights begin (narrow), or the first of its children among all children of
                        // wide families; of a twig, also where its room begins
  int64_t is_in_bough = 0;  // of the crown: 1 if a bough has it

  bool is_leaf() const { return num_children == 0; }
  bool is_wide() const { return num_children > kNarrowFamily; }
  bool is_crown() const { return size > kGroveLeaves; }
  bool has_families_below() const { return num_children > 0 && num_children < size; }
};

// Neighbouring roots on one level, with all below them.
struct Grove {
  int64_t root_begin = 0;
  int64_t root_end = 0;
  int64_t num_slots = 0;  // rows for the inner nodes that the crown does not see
  int64_t is_whole = 0;   // 1: the roots are roots of trees, so nothing is above them
};

// Neighbouring groves and the crown nodes above them, all narrow, up to one that has all of these leaves; or a grove
// alone.
struct Bough {
  int64_t grove_begin = 0;
  int64_t grove_end = 0;
  int64_t node_begin = 0;  // into bough_nodes, parents first
  int64_t node_end = 0;
  int64_t is_whole = 0;  // 1: nothing is above it
};

// Neighbouring leaves of one tree, at most kGroveLeaves: all of some roots of groves, or children of one crown node. So
// a family outside the crown belongs to one run, and a tree has the same runs whatever lies beside it.
struct LeafRun {
  int64_t first_leaf = 0;
  int64_t count = 0;
};

struct WalkTotals {
  int64_t num_roots = 0;
  int64_t inner = 0;         // inner nodes
  int64_t crown_slots = 0;   // rows for crown nodes and roots of groves
  int64_t grove_slots = 0;   // most rows that a grove needs
  int64_t weights = 0;       // numbers a head that all narrow families and twigs keep
  int64_t wide_members = 0;  // children of wide families
  int64_t path_keys = 0;     // most children of all ancestors of a leaf
};

// Views of the arrays below.
struct WalkView {
  WalkTotals totals;
  std::span<const WalkNode> nodes;
  std::span<const Grove> groves;  // in the order of their leaves
  std::span<const Bough> boughs;  // every grove in one
  std::span<const int64_t> bough_nodes;
  std::span<const int64_t> crown;              // nodes, by level
  std::span<const int64_t> crown_level_begin;  // into crown, from the roots' level on
  std::span<const LeafRun> runs;               // every leaf but those that are whole trees, in order
  std::span<const int64_t> leaf_nodes;         // node of each leaf
};

struct Walk {
  WalkTotals totals;
  std::vector<WalkNode> nodes;
  std::vector<Grove> groves;
  std::vector<Bough> boughs;
  std::vector<int64_t> bough_nodes;
  std::vector<int64_t> crown;
  std::vector<int64_t> crown_level_begin;
  std::vector<LeafRun> runs;
  std::vector<int64_t> leaf_nodes;

  WalkView view() const {
    return {totals, nodes, groves, boughs, bough_nodes, crown, crown_level_begin, runs, leaf_nodes};
  }
};

// Takes a contracted forest: every inner node has at least two children.
Walk make_walk(const Forest& contracted);

}  // namespace ramify
