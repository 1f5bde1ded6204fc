// Plans: every family of the contracted forest once, batched so that padding stays small, in linear space.
#include "hierarchy/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "generators/random_forest.h"
#include "hierarchy/contraction.h"

namespace ramify {
namespace {

using Array = std::vector<int64_t>;

constexpr Queries kBothQueries[] = {Queries::nodes, Queries::leaves};

// Calls `visit(level, batch, row)` for all rows of all batches.
template <class Visit>
void for_each_family(const Plan& plan, Visit visit) {
  for (size_t l = 0; l < plan.levels.size(); ++l) {
    for (int64_t b = plan.levels[l].batch_begin; b < plan.levels[l].batch_end; ++b) {
      const FamilyBatch& batch = plan.batches[b];
      for (int64_t f = 0; f < batch.families; ++f) visit(l, batch, plan.families[batch.family_begin + f], f);
    }
  }
}

RC_GTEST_PROP(Plan, HoldsEveryFamilyExactlyOnce, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  const Forest contracted = contract(forest).forest;
  const Array counts = contracted.leaf_counts();
  for (const Queries queries : kBothQueries) {
    const Plan plan = make_plan(forest, queries);
    RC_ASSERT(static_cast<int64_t>(plan.levels.size()) == contracted.num_levels());
    Array seen(contracted.num_nodes(), 0);
    for_each_family(plan, [&](size_t level, const FamilyBatch&, const FamilyRow& row, int64_t) {
      const int64_t node = plan.levels[level - 1].node_begin + row.parent;
      ++seen[node];
      RC_ASSERT(plan.levels[level].node_begin + row.first_slot == contracted.first_child()[node]);
      RC_ASSERT(row.num_slots == contracted.num_children(node));
      const bool by_leaf = queries == Queries::leaves;
      RC_ASSERT(row.first_query == (by_leaf ? contracted.first_leaf()[node] : row.first_slot));
      RC_ASSERT(row.num_queries == (by_leaf ? counts[node] : row.num_slots));
    });
    for (int64_t n = 0; n < contracted.num_nodes(); ++n) RC_ASSERT(seen[n] == (contracted.is_leaf(n) ? 0 : 1));
  }
}

RC_GTEST_PROP(Plan, ListsEveryLeafOnItsLevel, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  const Forest contracted = contract(forest).forest;
  const Plan plan = make_plan(forest, Queries::nodes);
  RC_ASSERT(static_cast<int64_t>(plan.leaves.size()) == forest.num_leaves());
  for (size_t l = 0; l < plan.levels.size(); ++l) {
    const PlanLevel& level = plan.levels[l];
    RC_ASSERT(level.node_begin == contracted.level_begin()[l]);
    RC_ASSERT(level.num_nodes == contracted.level_begin()[l + 1] - contracted.level_begin()[l]);
    for (int64_t i = level.leaf_begin; i < level.leaf_begin + level.num_leaves; ++i) {
      RC_ASSERT(contracted.leaf_nodes()[plan.leaves[i].leaf] == level.node_begin + plan.leaves[i].node);
      RC_ASSERT(plan.leaves[i].position_node == forest.leaf_nodes()[plan.leaves[i].leaf]);
    }
  }
}

RC_GTEST_PROP(Plan, KnowsTheOriginalNodes, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  const Contraction contraction = contract(forest);
  const Plan plan = make_plan(forest, Queries::leaves);
  const Array counts = forest.leaf_counts();
  Array depth(forest.num_nodes(), 0);
  const Array parents = forest.parents();
  for (int64_t n = 0; n < forest.num_nodes(); ++n) depth[n] = parents[n] < 0 ? 0 : depth[parents[n]] + 1;
  RC_ASSERT(plan.nodes.size() == contraction.top.size());
  for (size_t n = 0; n < plan.nodes.size(); ++n) {
    const int64_t top = contraction.top[n];
    RC_ASSERT(plan.nodes[n].position_node == top);
    RC_ASSERT(plan.nodes[n].size == counts[top]);
    RC_ASSERT(plan.nodes[n].first_leaf == forest.first_leaf()[top]);
    RC_ASSERT(plan.nodes[n].family_depth == std::max<int64_t>(depth[top] - 1, 0));
  }
}

RC_GTEST_PROP(Plan, PadsByLessThanAQuarter, ()) {
  const Forest forest = (*testing::tree_batches(testing::kTreesPerBatch, {3, 400, 400})).forest();
  for (const Queries queries : kBothQueries) {
    const Plan plan = make_plan(forest, queries);
    double padded_slots = 0, slots = 0, padded_queries = 0, num_queries = 0;
    for (const FamilyBatch& batch : plan.batches) {
      padded_slots += static_cast<double>(batch.families * batch.width);
      padded_queries += static_cast<double>(batch.families * batch.queries);
    }
    for_each_family(plan, [&](size_t, const FamilyBatch& batch, const FamilyRow& row, int64_t) {
      slots += static_cast<double>(row.num_slots);
      num_queries += static_cast<double>(row.num_queries);
      RC_ASSERT(row.num_slots <= batch.width && 4 * batch.width <= 5 * row.num_slots);
      RC_ASSERT(row.num_queries <= batch.queries && 4 * batch.queries <= 5 * row.num_queries);
    });
    RC_ASSERT(padded_slots <= 1.25 * slots);
    RC_ASSERT(padded_queries <= 1.25 * num_queries);
  }
}

RC_GTEST_PROP(Plan, SaysWhereConsecutiveRowsBegin, ()) {
  const Forest forest = (*testing::tree_batches()).forest();
  for (const Queries queries : kBothQueries) {
    for_each_family(make_plan(forest, queries), [](size_t, const FamilyBatch& batch, const FamilyRow& row, int64_t f) {
      if (batch.parent_begin >= 0) RC_ASSERT(row.parent == batch.parent_begin + f);
      if (batch.slot_begin >= 0) RC_ASSERT(row.first_slot == batch.slot_begin + f * batch.width);
      if (batch.query_begin >= 0) RC_ASSERT(row.first_query == batch.query_begin + f * batch.queries);
    });
  }
}

TEST(Plan, OfFullWindowsNeedsNoGathering) {
  const Plan plan = make_plan(windows(Array{64}, Branching::parse("4*")), Queries::nodes);
  ASSERT_EQ(plan.batches.size(), 3);
  for (const FamilyBatch& batch : plan.batches) {
    EXPECT_EQ(batch.parent_begin, 0);
    EXPECT_EQ(batch.slot_begin, 0);
    EXPECT_EQ(batch.query_begin, 0);
  }
}

TEST(Plan, OneWideFamilyDoesNotWidenTheNarrowOnes) {
  std::vector<Forest> forests = {windows(Array{4000}, {})};
  forests.push_back(windows(Array(4000, 2), {}));
  const Plan plan = make_plan(concatenate(forests), Queries::nodes);
  ASSERT_EQ(plan.batches.size(), 2);
  EXPECT_EQ(plan.batches[0].families, 4000);
  EXPECT_EQ(plan.batches[0].width, 2);
  EXPECT_EQ(plan.batches[1].families, 1);
  EXPECT_EQ(plan.batches[1].width, 4000);
}

TEST(Plan, IsLinearOnADeepComb) {
  constexpr int64_t kDepth = 20'000;
  Array preorder;
  for (int64_t d = 0; d < kDepth; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  for (const Queries queries : kBothQueries) {
    const Plan plan = make_plan(from_nested(preorder), queries);
    EXPECT_EQ(plan.levels.size(), kDepth + 1);
    EXPECT_EQ(plan.batches.size(), kDepth);
    EXPECT_EQ(plan.families.size(), kDepth);
    EXPECT_EQ(plan.leaves.size(), kDepth + 1);
    EXPECT_EQ(plan.nodes.size(), 2 * kDepth + 1);
  }
}

TEST(Plan, OfAMillionNodeChainIsOneLeaf) {
  Array preorder(1'000'000, 1);
  preorder.back() = kItem;
  const Plan plan = make_plan(from_nested(preorder), Queries::leaves);
  EXPECT_EQ(plan.levels.size(), 1);
  EXPECT_TRUE(plan.batches.empty());
  ASSERT_EQ(plan.leaves.size(), 1);
  EXPECT_EQ(plan.leaves[0].position_node, 999'999);
}

TEST(Plan, OfNothingIsEmpty) {
  EXPECT_TRUE(make_plan(Forest(), Queries::nodes).levels.empty());
  EXPECT_TRUE(make_plan(from_nested(Array{0, 0}), Queries::leaves).levels.empty());
}

}  // namespace
}  // namespace ramify
