// Coarser forests: the drawn example, and what holds for any forest.
#include "ramify/coarsen.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "generators/error_message.h"
#include "generators/forest_arrays.h"
#include "generators/random_forest.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

using testing::Array;
using testing::equal;
constexpr int64_t o = kItem;

TEST(CollapseLeaves, GivesTheDrawnExample) {
  const Forest forest = from_nested(Array{3, 2, o, o, o, 2, o, 2, o, o});
  const CoarseForest coarse = collapse_leaves(forest);
  EXPECT_TRUE(equal(coarse.forest, from_nested(Array{3, o, o, 2, o, o})));
  EXPECT_EQ(coarse.leaf, (Array{0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(coarse.node, (Array{0, 1, 2, 3, 6, 7}));
}

TEST(CollapseLeaves, LeavesBareLeavesAndEmptyTreesAlone) {
  const CoarseForest coarse = collapse_leaves(from_nested(Array{o, 0, 1, o, 2, o, o}));
  EXPECT_TRUE(equal(coarse.forest, from_nested(Array{o, 0, o, o})));
  EXPECT_EQ(coarse.leaf, (Array{0, 1, 2, 2}));
  EXPECT_EQ(collapse_leaves(Forest()).forest.num_nodes(), 0);
}

TEST(MergeLeaves, GroupsRunsOfLeavesFromTheLeft) {
  // 0 1 2 | (3) | 4 5, groups of two
  const CoarseForest coarse = merge_leaves(from_nested(Array{6, o, o, o, 1, o, o, o}), 2);
  EXPECT_TRUE(equal(coarse.forest, from_nested(Array{4, o, o, 1, o, o})));
  EXPECT_EQ(coarse.leaf, (Array{0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(coarse.node, (Array{0, 1, 3, 4, 5, 7}));
}

TEST(MergeLeaves, RejectsGroupsOfNothing) {
  EXPECT_EQ(testing::error_message([] { merge_leaves(Forest(), 0); }), "merge_leaves: group is 0; expected at least 1");
}

TEST(CollapseLeaves, GoesAMillionLevelsDeep) {
  Array preorder(1000000, 1);
  preorder.push_back(o);
  EXPECT_EQ(collapse_leaves(from_nested(preorder)).forest.num_levels(), 1000000);
}

// What is true of every coarser forest.
void require_coarser(const Forest& forest, const CoarseForest& coarse) {
  RC_ASSERT(coarse.forest.num_trees() == forest.num_trees());
  RC_ASSERT(static_cast<int64_t>(coarse.node.size()) == coarse.forest.num_nodes());
  RC_ASSERT(static_cast<int64_t>(coarse.leaf.size()) == forest.num_leaves());
  const Array old_parents = forest.parents(), new_parents = coarse.forest.parents();
  const Array counts = forest.leaf_counts(), new_counts = coarse.forest.leaf_counts();
  for (int64_t n = 0; n < coarse.forest.num_nodes(); ++n) {
    // structure above the leaves is that of the old forest
    RC_ASSERT((new_parents[n] < 0 ? -1 : coarse.node[new_parents[n]]) == old_parents[coarse.node[n]]);
    // the leaves below a node hold exactly the leaves below the old one; a merged leaf holds more than its first
    const int64_t begin = forest.first_leaf()[coarse.node[n]];
    RC_ASSERT(coarse.leaf[begin] == coarse.forest.first_leaf()[n]);
    if (begin > 0) RC_ASSERT(coarse.leaf[begin - 1] < coarse.leaf[begin]);
    if (coarse.forest.is_leaf(n)) continue;
    const int64_t end = begin + counts[coarse.node[n]];
    RC_ASSERT(coarse.leaf[end - 1] == coarse.forest.first_leaf()[n] + new_counts[n] - 1);
  }
  RC_ASSERT(std::is_sorted(coarse.leaf.begin(), coarse.leaf.end()));
  if (forest.num_leaves() > 0) RC_ASSERT(coarse.leaf.back() == coarse.forest.num_leaves() - 1);
}

constexpr testing::TreeLimits kSmall = {6, 12, 60};

RC_GTEST_PROP(CoarsenLaws, CollapsingKeepsWhatStandsAbove, ()) {
  const Forest forest = (*testing::tree_batches(20, kSmall)).forest();
  const CoarseForest coarse = collapse_leaves(forest);
  require_coarser(forest, coarse);
  // a leaf is new exactly where a family of leaves was
  for (const int64_t node : coarse.forest.leaf_nodes()) {
    const int64_t old = coarse.node[node];
    for (int64_t c = forest.first_child()[old]; c < forest.first_child()[old + 1]; ++c) RC_ASSERT(forest.is_leaf(c));
  }
}

RC_GTEST_PROP(CoarsenLaws, CollapsingDepthTimesLeavesOneLeafATree, ()) {
  Forest forest = (*testing::tree_batches(20, kSmall)).forest();
  const int64_t trees = forest.tree_begin().back();
  for (int64_t d = forest.depth(); d > 0; --d) forest = collapse_leaves(forest).forest;
  RC_ASSERT(forest.num_nodes() == trees);
}

RC_GTEST_PROP(CoarsenLaws, MergingKeepsWhatStandsAbove, ()) {
  const Forest forest = (*testing::tree_batches(20, kSmall)).forest();
  const int64_t group = *rc::gen::inRange<int64_t>(1, 6);
  const CoarseForest coarse = merge_leaves(forest, group);
  require_coarser(forest, coarse);
  Array members(coarse.forest.num_leaves(), 0);
  const Array parents = forest.parents();
  for (size_t i = 0; i < coarse.leaf.size(); ++i) {
    ++members[coarse.leaf[i]];
    if (i > 0 && coarse.leaf[i] == coarse.leaf[i - 1]) {
      RC_ASSERT(parents[forest.leaf_nodes()[i]] == parents[forest.leaf_nodes()[i - 1]]);
    }
  }
  for (const int64_t count : members) RC_ASSERT(count <= group);
  if (group == 1) RC_ASSERT(equal(coarse.forest, forest));
}

RC_GTEST_PROP(CoarsenLaws, CoarseningABatchIsCoarseningItsTrees, ()) {
  const testing::TreeBatch batch = *testing::tree_batches(10, kSmall);
  for (const bool collapse : {true, false}) {
    const auto coarsened = [&](const Forest& forest) {
      return (collapse ? collapse_leaves(forest) : merge_leaves(forest, 3)).forest;
    };
    std::vector<Forest> single;
    for (const auto& tree : batch.trees) single.push_back(coarsened(from_nested(tree)));
    RC_ASSERT(equal(coarsened(batch.forest()), concatenate(single)));
  }
}

}  // namespace
}  // namespace ramify
