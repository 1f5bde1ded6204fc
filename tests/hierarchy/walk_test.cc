// Walks: every family of the contracted forest in the crown or in one grove, rows and weights that do not overlap,
// every grove in one bough, every leaf in one run.
#include "hierarchy/walk.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "generators/random_forest.h"
#include "hierarchy/contraction.h"

namespace ramify {
namespace {

using Array = std::vector<int64_t>;

// What is wrong, with the place; empty: nothing.
using Flaw = std::string;
constexpr const char* kNone = "";

Flaw at(const char* what, int64_t place) {
  return what + (" " + std::to_string(place));
}

Flaw flaw_of_nodes(const Walk& walk, const Forest& forest) {
  const Array parents = forest.parents(), sizes = forest.leaf_counts();
  if (static_cast<int64_t>(walk.nodes.size()) != forest.num_nodes()) return "number of nodes";
  int64_t inner = 0;
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    const WalkNode& node = walk.nodes[n];
    if (node.first_child != forest.first_child()[n]) return at("first child of node", n);
    if (node.num_children != forest.num_children(n)) return at("children of node", n);
    if (node.size != sizes[n] || node.first_leaf != forest.first_leaf()[n]) return at("leaves of node", n);
    if (node.parent != parents[n]) return at("parent of node", n);
    if (node.is_leaf() ? node.inner != -1 || node.slot != -1 : node.inner != inner++) return at("number of node", n);
  }
  return walk.totals.inner == inner ? kNone : "total of inner nodes";
}

// Marks [begin, begin + count) of `taken`, which must be free.
bool take(std::vector<bool>& taken, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < begin + count; ++i) {
    if (i < 0 || i >= static_cast<int64_t>(taken.size()) || taken[i]) return false;
    taken[i] = true;
  }
  return true;
}

bool all(const std::vector<bool>& taken) {
  return std::all_of(taken.begin(), taken.end(), [](bool one) { return one; });
}

// Of families that are no twigs, and of largest twigs, all weights belong to one; within a twig its family and the
// twigs below it have weights of their own.
Flaw flaw_of_weights(const Walk& walk) {
  std::vector<bool> narrow(walk.totals.weights), wide(walk.totals.wide_members), inside(walk.totals.weights);
  const auto is_twig = [&](int64_t n) { return n >= 0 && walk.nodes[n].size <= kTwigLeaves; };
  for (size_t n = 0; n < walk.nodes.size(); ++n) {
    const WalkNode& node = walk.nodes[n];
    if (node.is_leaf()) continue;
    const auto number = static_cast<int64_t>(n);
    const int64_t b = node.num_children, rows = is_twig(number) ? node.size : b;
    if (node.is_wide()) {
      if (!take(wide, node.weights, b)) return at("weights of node", number);
      continue;
    }
    if (!take(inside, node.weights, b * b)) return at("weights of family", number);
    if (!is_twig(node.parent)) {
      if (!take(narrow, node.weights, rows * rows)) return at("weights of node", number);
      continue;
    }
    const WalkNode& parent = walk.nodes[node.parent];
    const bool is_within = node.weights >= parent.weights + parent.num_children * parent.num_children &&
                           node.weights + rows * rows <= parent.weights + parent.size * parent.size;
    if (!is_within) return at("weights of twig", number);
  }
  return all(narrow) && all(wide) ? kNone : "weights that no family owns";
}

Flaw flaw_of_crown(const Walk& walk, const Forest& forest) {
  if (static_cast<int64_t>(walk.crown_level_begin.size()) != forest.num_levels() + 1) return "levels of the crown";
  Array expected;
  for (int64_t l = 0; l < forest.num_levels(); ++l) {
    if (walk.crown_level_begin[l] != static_cast<int64_t>(expected.size())) return at("crown level", l);
    for (int64_t n = forest.level_begin()[l]; n < forest.level_begin()[l + 1]; ++n) {
      if (walk.nodes[n].size > kGroveLeaves) expected.push_back(n);
    }
  }
  if (walk.crown != expected) return "nodes of the crown";
  return walk.crown_level_begin.back() == static_cast<int64_t>(expected.size()) ? kNone : "end of the crown";
}

// Inner nodes of one grove into `owner`, and their rows into `slots`, [crown, grove].
Flaw flaw_of_grove(const Walk& walk, int64_t g, Array& owner, std::vector<bool>& crown_slots) {
  const Grove& grove = walk.groves[g];
  std::vector<bool> slots(grove.num_slots);
  int64_t leaves = 0, begin = grove.root_begin, end = grove.root_end;
  if (begin >= end) return at("no roots in grove", g);
  for (bool is_root = true; begin < end; is_root = false) {
    for (int64_t n = begin; n < end; ++n) {
      const WalkNode& node = walk.nodes[n];
      if (node.is_crown()) return at("crown node in grove", g);
      if (is_root) {
        const bool is_top = node.parent < 0;
        if (is_top != (grove.is_whole == 1)) return at("is_whole of grove", g);
        if (!is_top && !walk.nodes[node.parent].is_crown()) return at("something between the crown and grove", g);
      }
      if (node.is_leaf()) continue;
      if (is_root) leaves += node.size;
      if (owner[n] >= 0) return at("two groves have node", n);
      owner[n] = g;
      if (!take(is_root && !grove.is_whole ? crown_slots : slots, node.slot, 1)) return at("slot of node", n);
    }
    const WalkNode &first = walk.nodes[begin], &last = walk.nodes[end - 1];
    begin = first.first_child, end = last.first_child + last.num_children;
  }
  if (leaves == 0 || leaves > kGroveLeaves) return at("leaves of grove", g);
  return all(slots) ? Flaw() : at("unused slots in grove", g);
}

Flaw flaw_of_groves(const Walk& walk) {
  Array owner(walk.nodes.size(), -1);
  std::vector<bool> crown_slots(walk.totals.crown_slots);
  int64_t most = 0;
  for (size_t g = 0; g < walk.groves.size(); ++g) {
    const Flaw flaw = flaw_of_grove(walk, static_cast<int64_t>(g), owner, crown_slots);
    if (!flaw.empty()) return flaw;
    most = std::max(most, walk.groves[g].num_slots);
  }
  for (const int64_t n : walk.crown) {
    if (!take(crown_slots, walk.nodes[n].slot, 1)) return at("slot of crown node", n);
    if (owner[n] >= 0) return at("a grove has crown node", n);
  }
  for (size_t n = 0; n < walk.nodes.size(); ++n) {
    const WalkNode& node = walk.nodes[n];
    if (!node.is_leaf() && !node.is_crown() && owner[n] < 0) return at("no grove has node", static_cast<int64_t>(n));
  }
  if (!all(crown_slots)) return "unused slots in the crown";
  return walk.totals.grove_slots == most ? kNone : "most slots of a grove";
}

// One bough: the crown nodes above its groves, and nothing that another one has. `bough_of`: by nodes.
Flaw flaw_of_bough(const Walk& walk, int64_t b, Array& bough_of) {
  const Bough& bough = walk.boughs[b];
  if (bough.grove_begin >= bough.grove_end) return at("no groves in bough", b);
  if (bough.node_begin == bough.node_end) {
    if (bough.grove_end != bough.grove_begin + 1) return at("nothing above the groves of bough", b);
    return walk.groves[bough.grove_begin].is_whole == bough.is_whole ? Flaw() : at("is_whole of bough", b);
  }
  const WalkNode& root = walk.nodes[walk.bough_nodes[bough.node_begin]];
  if ((root.parent < 0) != (bough.is_whole == 1)) return at("is_whole of bough", b);
  for (int64_t i = bough.node_begin; i < bough.node_end; ++i) {
    const int64_t n = walk.bough_nodes[i];
    const WalkNode& node = walk.nodes[n];
    if (!node.is_crown() || !node.is_in_bough || node.is_wide()) return at("no crown node of a bough: node", n);
    if (node.size > kBoughLeaves) return at("leaves in bough", b);
    if (bough_of[n] >= 0) return at("two boughs have node", n);
    if (i > bough.node_begin && bough_of[node.parent] != b) return at("no parent before node", n);
    bough_of[n] = b;
  }
  for (int64_t g = bough.grove_begin; g < bough.grove_end; ++g) {
    for (int64_t n = walk.groves[g].root_begin; n < walk.groves[g].root_end; ++n) {
      const int64_t parent = walk.nodes[n].parent;
      if (parent < 0 || bough_of[parent] != b) return at("another bough has the parent of node", n);
    }
  }
  return kNone;
}

Flaw flaw_of_boughs(const Walk& walk) {
  Array bough_of(walk.nodes.size(), -1);
  int64_t groves = 0, nodes = 0;
  for (size_t b = 0; b < walk.boughs.size(); ++b) {
    const Bough& bough = walk.boughs[b];
    if (bough.grove_begin != groves || bough.node_begin != nodes) return at("beginning of bough", groves);
    groves = bough.grove_end, nodes = bough.node_end;
    const Flaw flaw = flaw_of_bough(walk, static_cast<int64_t>(b), bough_of);
    if (!flaw.empty()) return flaw;
  }
  if (groves != static_cast<int64_t>(walk.groves.size())) return "groves without a bough";
  if (nodes != static_cast<int64_t>(walk.bough_nodes.size())) return "nodes without a bough";
  for (const int64_t n : walk.crown) {
    const WalkNode& node = walk.nodes[n];
    if ((bough_of[n] >= 0) != (node.is_in_bough == 1)) return at("bough of crown node", n);
    bool may_be = node.size <= kBoughLeaves && !node.is_wide();
    for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
      if (walk.nodes[c].is_crown() && bough_of[c] < 0) may_be = false;
      if (bough_of[n] >= 0 && walk.nodes[c].is_crown() && bough_of[c] != bough_of[n]) return at("bough below node", n);
    }
    if (may_be != (bough_of[n] >= 0)) return at("a bough should have node", n);
  }
  for (size_t g = 1; g < walk.groves.size(); ++g) {
    const auto first_leaf = [&](size_t grove) { return walk.nodes[walk.groves[grove].root_begin].first_leaf; };
    if (first_leaf(g - 1) >= first_leaf(g)) return at("order of groves at", static_cast<int64_t>(g));
  }
  return kNone;
}

int64_t root_above(const Walk& walk, int64_t node) {
  while (walk.nodes[node].parent >= 0) node = walk.nodes[node].parent;
  return node;
}

Flaw flaw_of_runs(const Walk& walk, const Forest& forest) {
  Array run_of(forest.num_leaves(), -1);
  for (size_t r = 0; r < walk.runs.size(); ++r) {
    const auto number = static_cast<int64_t>(r);
    const LeafRun& run = walk.runs[r];
    if (run.count <= 0 || run.count > kGroveLeaves) return at("length of run", number);
    if (run.first_leaf < 0 || run.first_leaf + run.count > forest.num_leaves()) return at("place of run", number);
    const int64_t parent = walk.nodes[forest.leaf_nodes()[run.first_leaf]].parent;
    const int64_t tree = root_above(walk, parent);
    for (int64_t i = run.first_leaf; i < run.first_leaf + run.count; ++i) {
      if (run_of[i] >= 0) return at("two runs have leaf", i);
      run_of[i] = number;
      const int64_t own = walk.nodes[forest.leaf_nodes()[i]].parent;
      if (own < 0) return at("a run has bare leaf", i);
      if (root_above(walk, own) != tree) return at("two trees in run", number);
      const bool is_below_crown = walk.nodes[own].is_crown();
      if (is_below_crown != walk.nodes[parent].is_crown()) return at("crown and groves mix in run", number);
      if (is_below_crown && own != parent) return at("two crown nodes in run", number);
    }
  }
  for (int64_t i = 0; i < forest.num_leaves(); ++i) {
    const bool is_bare = walk.nodes[forest.leaf_nodes()[i]].parent < 0;
    if ((run_of[i] >= 0) == is_bare) return at("run of leaf", i);
  }
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    const WalkNode& node = walk.nodes[n];
    if (node.is_leaf() || node.is_crown()) continue;
    for (int64_t i = node.first_leaf; i < node.first_leaf + node.size; ++i) {
      if (run_of[i] != run_of[node.first_leaf]) return at("several runs hold the leaves of node", n);
    }
  }
  return kNone;
}

// From the leaves down to the roots, where walk.cc goes the other way.
Flaw flaw_of_totals(const Walk& walk, const Forest& forest) {
  int64_t roots = 0;
  for (int64_t t = 0; t < forest.num_trees(); ++t) roots += forest.tree_begin()[t + 1] - forest.tree_begin()[t];
  if (walk.totals.num_roots != roots) return "number of roots";
  Array keys(forest.num_nodes(), 0);  // most children on a path from here down
  int64_t longest = 0;
  for (int64_t n = forest.num_nodes() - 1; n >= 0; --n) {
    for (int64_t c = forest.first_child()[n]; c < forest.first_child()[n + 1]; ++c) {
      keys[n] = std::max(keys[n], forest.num_children(n) + keys[c]);
    }
    longest = std::max(longest, keys[n]);
  }
  if (walk.totals.path_keys != longest) return "longest path";
  return std::equal(walk.leaf_nodes.begin(), walk.leaf_nodes.end(), forest.leaf_nodes().begin(),
                    forest.leaf_nodes().end())
             ? kNone
             : "nodes of leaves";
}

Flaw flaw_of(const Forest& forest) {
  const Forest contracted = contract(forest).forest;
  const Walk walk = make_walk(contracted);
  for (const Flaw& flaw :
       {flaw_of_nodes(walk, contracted), flaw_of_weights(walk), flaw_of_crown(walk, contracted), flaw_of_groves(walk),
        flaw_of_boughs(walk), flaw_of_runs(walk, contracted), flaw_of_totals(walk, contracted)}) {
    if (!flaw.empty()) return flaw;
  }
  return kNone;
}

RC_GTEST_PROP(Walk, HasNoFlawOnRaggedTrees, ()) {
  RC_ASSERT(flaw_of((*testing::tree_batches()).forest()) == kNone);
}

RC_GTEST_PROP(Walk, HasNoFlawOnSmallTrees, ()) {
  RC_ASSERT(flaw_of((*testing::tree_batches(testing::kTreesPerBatch, {5, 6, 70})).forest()) == kNone);
}

RC_GTEST_PROP(Walk, HasNoFlawOnWideFamilies, ()) {
  RC_ASSERT(flaw_of((*testing::tree_batches(testing::kTreesPerBatch, {4, 300, 2000})).forest()) == kNone);
}

Array comb(int64_t depth) {
  Array preorder;
  for (int64_t d = 0; d < depth; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  return preorder;
}

TEST(Walk, HasNoFlawOnOddForests) {
  EXPECT_EQ(flaw_of(Forest()), kNone);
  EXPECT_EQ(flaw_of(from_nested(Array{0, 0})), kNone);
  EXPECT_EQ(flaw_of(from_nested(Array{kItem, 0, kItem, 2, kItem, kItem, kItem})), kNone);
  EXPECT_EQ(flaw_of(from_nested(Array{1, 1, kItem})), kNone);
  for (const int64_t leaves : {63, 64, 65, 127, 128, 129, 4096}) {
    SCOPED_TRACE(leaves);
    EXPECT_EQ(flaw_of(windows(Array{leaves}, {})), kNone);
    EXPECT_EQ(flaw_of(windows(Array{leaves, 1, leaves}, Branching::parse("2*"))), kNone);
    EXPECT_EQ(flaw_of(windows(Array{leaves}, Branching::parse("16*"))), kNone);
    EXPECT_EQ(flaw_of(from_nested(comb(leaves))), kNone);
  }
  EXPECT_EQ(flaw_of(from_nested(comb(20'000))), kNone);
}

TEST(Walk, OfNothingIsEmpty) {
  const Walk walk = make_walk(Forest());
  EXPECT_TRUE(walk.nodes.empty() && walk.groves.empty() && walk.crown.empty() && walk.runs.empty());
  EXPECT_EQ(walk.totals.num_roots, 0);
  EXPECT_EQ(walk.totals.path_keys, 0);
}

TEST(Walk, OfBareLeavesHasNothingToDo) {
  const Walk walk = make_walk(from_nested(Array{kItem, kItem}));
  EXPECT_EQ(walk.totals.num_roots, 2);
  EXPECT_TRUE(walk.groves.empty() && walk.crown.empty() && walk.runs.empty());
}

TEST(Walk, PutsSmallTreesTogether) {
  const Walk walk = make_walk(windows(Array(10, 16), {}));  // ten trees of sixteen leaves: four a grove
  ASSERT_EQ(walk.groves.size(), 3);
  EXPECT_EQ(walk.groves[0].root_end - walk.groves[0].root_begin, 4);
  EXPECT_EQ(walk.groves[2].root_end - walk.groves[2].root_begin, 2);
  EXPECT_EQ(walk.totals.crown_slots, 0);
  EXPECT_EQ(walk.totals.weights, 10 * 16 * 16);
}

// Runs of a tree, from its first leaf.
std::vector<std::pair<int64_t, int64_t>> runs_of(const Walk& walk, int64_t first_leaf, int64_t count) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const LeafRun& run : walk.runs) {
    const bool is_here = run.first_leaf >= first_leaf && run.first_leaf < first_leaf + count;
    if (is_here) runs.emplace_back(run.first_leaf - first_leaf, run.count);
  }
  return runs;
}

TEST(Walk, CutsATreeAlikeWhateverLiesBesideIt) {
  const auto walk_of = [](const Array& sizes, const char* branching) {
    return make_walk(contract(windows(sizes, Branching::parse(branching))).forest);
  };
  for (const auto& [leaves, branching] : std::vector<std::pair<int64_t, const char*>>{
           {40, "3*"}, {300, "10*"}, {300, "7,3*"}, {700, "13*"}, {700, "2,4,8,16"}}) {
    const auto alone = runs_of(walk_of({leaves}, branching), 0, leaves);
    for (const int64_t before : {1, 7, 60, 130, 333}) {
      EXPECT_EQ(runs_of(walk_of({before, leaves, before}, branching), before, leaves), alone)
          << leaves << " leaves behind " << before << ", " << branching;
    }
  }
}

TEST(Walk, CutsTheCrownIntoBoughs) {
  const Walk walk = make_walk(windows(Array{4096}, Branching::parse("16*")));
  ASSERT_EQ(walk.boughs.size(), 16);
  EXPECT_EQ(walk.bough_nodes.size(), 16);
  EXPECT_EQ(walk.boughs[0].grove_end, 4);
  EXPECT_EQ(walk.crown.size(), 17);
}

TEST(Walk, KeepsWeightsOfNarrowFamiliesOnly) {
  const Walk walk = make_walk(windows(Array{64, 65}, {}));
  EXPECT_EQ(walk.totals.weights, 64 * 64);
  EXPECT_EQ(walk.totals.wide_members, 65);
  EXPECT_EQ(walk.totals.path_keys, 65);
}

}  // namespace
}  // namespace ramify
