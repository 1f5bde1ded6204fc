// The forest itself: what from_arrays takes and rejects, the numbering of leaves, derived arrays.
#include "ramify/forest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "generators/error_message.h"
#include "generators/forest_arrays.h"
#include "generators/random_forest.h"

namespace ramify {
namespace {

using testing::Array;
using testing::copy;
using testing::error_message;

// The forest drawn in ramify/forest.h.
const Array kFirstChild = {2, 4, 6, 8, 8, 8, 8, 8, 8};
const Array kLevelBegin = {0, 2, 6, 8};
const Array kTreeBegin = {0, 1, 2};

std::string error_of(const Array& first_child, const Array& level_begin, const Array& tree_begin) {
  return error_message([&] { Forest::from_arrays(first_child, level_begin, tree_begin); });
}

TEST(Forest, HoldsTheDrawnExample) {
  const Forest forest = Forest::from_arrays(kFirstChild, kLevelBegin, kTreeBegin);
  EXPECT_EQ(forest.num_trees(), 2);
  EXPECT_EQ(forest.num_nodes(), 8);
  EXPECT_EQ(forest.num_leaves(), 5);
  EXPECT_EQ(forest.num_levels(), 3);
  EXPECT_EQ(forest.depth(), 2);
  EXPECT_EQ(copy(forest.first_child()), kFirstChild);
  EXPECT_EQ(copy(forest.level_begin()), kLevelBegin);
  EXPECT_EQ(copy(forest.tree_begin()), kTreeBegin);
  EXPECT_EQ(copy(forest.leaf_nodes()), (Array{6, 7, 3, 4, 5}));
  EXPECT_EQ(copy(forest.first_leaf()), (Array{0, 3, 0, 2, 3, 4, 0, 1}));
  EXPECT_EQ(forest.parents(), (Array{-1, -1, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(forest.sibling_index(), (Array{0, 0, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(forest.leaf_counts(), (Array{3, 2, 2, 1, 1, 1, 1, 1}));
  EXPECT_EQ(forest.tree_leaf_begin(), (Array{0, 3, 5}));
}

TEST(Forest, IsEmptyWhenMadeFromNothing) {
  const Forest forest;
  EXPECT_EQ(forest.num_trees(), 0);
  EXPECT_EQ(forest.num_nodes(), 0);
  EXPECT_EQ(forest.num_leaves(), 0);
  EXPECT_EQ(forest.depth(), 0);
  EXPECT_EQ(copy(forest.first_child()), Array{0});
  EXPECT_EQ(forest.tree_leaf_begin(), Array{0});
}

TEST(Forest, HoldsEmptyTreesAndBareLeaves) {
  const Forest forest = Forest::from_arrays({2, 2, 2}, {0, 2}, {0, 0, 1, 1, 2, 2});
  EXPECT_EQ(forest.num_trees(), 5);
  EXPECT_EQ(forest.num_leaves(), 2);
  EXPECT_EQ(forest.depth(), 0);
  EXPECT_EQ(forest.tree_leaf_begin(), (Array{0, 0, 1, 1, 2, 2}));
}

TEST(Forest, CopiesShareTheArrays) {
  const Forest forest = Forest::from_arrays(kFirstChild, kLevelBegin, kTreeBegin);
  const Forest copied = forest;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copied.first_child().data(), forest.first_child().data());
}

TEST(FromArrays, RejectsTreesThatDoNotStartAtZero) {
  EXPECT_EQ(error_of({0}, {0}, {}), "forest: tree_begin must start with 0");
  EXPECT_EQ(error_of(kFirstChild, kLevelBegin, {1, 2}), "forest: tree_begin must start with 0");
}

TEST(FromArrays, RejectsTreesOfTwoRoots) {
  EXPECT_EQ(error_of(kFirstChild, kLevelBegin, {0, 2}), "forest: tree 0 has 2 roots, expected one or none");
  EXPECT_EQ(error_of(kFirstChild, kLevelBegin, {0, 1, 0}), "forest: tree 1 has -1 roots, expected one or none");
}

TEST(FromArrays, RejectsMissingFirstChild) {
  EXPECT_EQ(error_of({}, {0}, {0}), "forest: first_child must have num_nodes + 1 entries, it has 0");
}

TEST(FromArrays, RejectsChildrenThatAreRootsOrNobodys) {
  const std::string rest = " but there are 2 roots; nodes between them have two parents or none";
  EXPECT_EQ(error_of({1, 4, 6, 8, 8, 8, 8, 8, 8}, kLevelBegin, kTreeBegin), "forest: first_child starts at 1" + rest);
  EXPECT_EQ(error_of({3, 4, 6, 8, 8, 8, 8, 8, 8}, kLevelBegin, kTreeBegin), "forest: first_child starts at 3" + rest);
}

TEST(FromArrays, RejectsTwoParents) {
  EXPECT_EQ(error_of({2, 5, 4, 8, 8, 8, 8, 8, 8}, kLevelBegin, kTreeBegin),
            "forest: the children of node 1 overlap those of the next; node 4 has two parents");
}

TEST(FromArrays, RejectsChildrenBeyondTheEnd) {
  EXPECT_EQ(error_of({2, 4, 6, 9, 9, 9, 9, 9, 9}, kLevelBegin, kTreeBegin),
            "forest: node 2 has children up to 8, the forest has 8 nodes");
}

TEST(FromArrays, RejectsCycles) {
  EXPECT_EQ(error_of({1, 1, 2}, {0, 1, 2}, {0, 1}), "forest: node 1 is its own ancestor (cycle)");
  EXPECT_EQ(error_of({0, 1}, {0, 1}, {0}), "forest: node 0 is its own ancestor (cycle)");
}

TEST(FromArrays, RejectsGaps) {
  EXPECT_EQ(error_of({2, 4, 6, 7, 7, 7, 7, 7, 7}, kLevelBegin, kTreeBegin), "forest: node 7 has no parent (gap)");
}

TEST(FromArrays, RejectsLevelsThatDoNotFit) {
  const std::string expected =
      "forest: level_begin does not fit first_child; it must hold where each level of nodes begins, and their number";
  EXPECT_EQ(error_of(kFirstChild, {0, 2, 5, 8}, kTreeBegin), expected);
  EXPECT_EQ(error_of(kFirstChild, {0, 2, 6}, kTreeBegin), expected);
  EXPECT_EQ(error_of(kFirstChild, {}, kTreeBegin), expected);
  EXPECT_EQ(error_of(kFirstChild, {0, 2, 6, 8, 8}, kTreeBegin), expected);
}

RC_GTEST_PROP(Forest, IsItsArrays, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  const Forest again =
      Forest::from_arrays(copy(forest.first_child()), copy(forest.level_begin()), copy(forest.tree_begin()));
  RC_ASSERT(copy(again.leaf_nodes()) == copy(forest.leaf_nodes()));
  RC_ASSERT(copy(again.first_leaf()) == copy(forest.first_leaf()));
}

RC_GTEST_PROP(Forest, NumbersLeavesLeftToRightInEveryTree, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  int64_t leaf = 0;
  for (int64_t t = 0; t < forest.num_trees(); ++t) {
    RC_ASSERT(forest.tree_leaf_begin()[t] == leaf);
    Array open;  // depth first, with the leftmost on top
    for (int64_t root = forest.tree_begin()[t]; root < forest.tree_begin()[t + 1]; ++root) open.push_back(root);
    while (!open.empty()) {
      const int64_t node = open.back();
      open.pop_back();
      RC_ASSERT(forest.first_leaf()[node] == leaf);
      if (forest.is_leaf(node)) RC_ASSERT(forest.leaf_nodes()[leaf++] == node);
      for (int64_t c = forest.num_children(node); c > 0; --c) open.push_back(forest.first_child()[node] + c - 1);
    }
  }
  RC_ASSERT(leaf == forest.num_leaves());
}

RC_GTEST_PROP(Forest, DerivedArraysAgreeWithEachOther, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  const Array parents = forest.parents(), places = forest.sibling_index(), counts = forest.leaf_counts();
  Array sums(forest.num_nodes(), 0);
  int64_t level = 0;
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    while (n >= forest.level_begin()[level + 1]) ++level;
    RC_ASSERT((parents[n] < 0) == (level == 0));
    if (parents[n] < 0) continue;
    RC_ASSERT(parents[n] >= forest.level_begin()[level - 1] && parents[n] < forest.level_begin()[level]);
    RC_ASSERT(forest.first_child()[parents[n]] + places[n] == n);
    sums[parents[n]] += counts[n];
  }
  for (int64_t n = 0; n < forest.num_nodes(); ++n) RC_ASSERT(counts[n] == (forest.is_leaf(n) ? 1 : sums[n]));
}

}  // namespace
}  // namespace ramify
