// Chains of only children disappear; trees, leaves and everything else stay.
#include "hierarchy/contraction.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "generators/forest_arrays.h"
#include "generators/random_forest.h"

namespace ramify {
namespace {

using testing::Array;
using testing::copy;

TEST(Contraction, KeepsAForestWithoutChains) {
  const Forest forest = from_nested(Array{2, kItem, 2, kItem, kItem});
  const Contraction result = contract(forest);
  EXPECT_EQ(result.forest.first_child().data(), forest.first_child().data());
  EXPECT_EQ(result.top, (Array{0, 1, 2, 3, 4}));
}

TEST(Contraction, StandsForTheTopOfAChain) {
  // Root 0 - 1 - {2, 3}; 2 - 4 - {6, 7}; 3 - 5 is a chain to a leaf.
  const Contraction result = contract(from_nested(Array{1, 2, 1, 2, kItem, kItem, 1, kItem}));
  EXPECT_EQ(copy(result.forest.first_child()), (Array{1, 3, 5, 5, 5, 5}));
  EXPECT_EQ(result.top, (Array{0, 2, 3, 6, 7}));
}

TEST(Contraction, TurnsAChainIntoABareLeafAndKeepsEmptyTrees) {
  const Contraction result = contract(from_nested(Array{0, 1, 1, kItem, 0}));
  EXPECT_EQ(copy(result.forest.tree_begin()), (Array{0, 0, 1, 1}));
  EXPECT_EQ(result.forest.num_nodes(), 1);
  EXPECT_EQ(result.top, Array{0});
}

RC_GTEST_PROP(Contraction, KeepsLeavesAndTreesAndHasNoOnlyChild, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  const auto [contracted, top] = contract(forest);
  const Array counts = forest.leaf_counts(), contracted_counts = contracted.leaf_counts();
  const Array parents = forest.parents();
  RC_ASSERT(contracted.num_leaves() == forest.num_leaves());
  RC_ASSERT(contracted.tree_leaf_begin() == forest.tree_leaf_begin());
  int64_t kept = 0;
  for (int64_t n = 0; n < forest.num_nodes(); ++n) kept += forest.num_children(n) != 1;
  RC_ASSERT(contracted.num_nodes() == kept);
  for (int64_t n = 0; n < contracted.num_nodes(); ++n) {
    RC_ASSERT(contracted.num_children(n) != 1);
    RC_ASSERT(contracted_counts[n] == counts[top[n]]);
    RC_ASSERT(contracted.first_leaf()[n] == forest.first_leaf()[top[n]]);
    if (parents[top[n]] >= 0) RC_ASSERT(forest.num_children(parents[top[n]]) > 1);
  }
}

}  // namespace
}  // namespace ramify
