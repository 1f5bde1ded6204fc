// The walks of the CUDA kernels come out of their tensors as they went in. The tables are read here on the CPU.
#include "ops/block_walk_tensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "hierarchy/contraction.h"
#include "ops/plan_tensors.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

template <class Record>
void expect_equal(std::span<const Record> found, const std::vector<Record>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_TRUE(expected.empty() || std::memcmp(found.data(), expected.data(), found.size_bytes()) == 0);
}

TEST(BlockWalkTensors, ComeBackAsTheyWere) {
  using Lengths = std::vector<int64_t>;
  for (const Forest& forest : {Forest(), windows(Lengths{600, 0, 20, 1}, Branching::parse("16*")),
                               windows(Lengths{300, 40}, Branching::parse("2,4,8,16")), windows(Lengths{700}, {}),
                               windows(Lengths{70, 3}, {})}) {
    const BlockWalkTensors tensors = block_walk_tensors(forest, at::kCPU);
    check_block_walks(tensors.host, tensors.device);
    const Forest contracted = contract(forest).forest;
    const BlockWalk walks[] = {make_block_walk(contracted, kNoGroves), make_block_walk(contracted, kGroves)};
    for (const WalkKind kind : {WalkKind::without_groves, WalkKind::with_groves}) {
      const BlockWalk& walk = walks[static_cast<int>(kind)];
      const BlockWalkView view = block_walk_view(tensors.host, tensors.device, kind);
      EXPECT_EQ(std::memcmp(&view.totals, &walk.totals, sizeof(walk.totals)), 0);
      EXPECT_EQ(tensors.num_slots[static_cast<int>(kind)], walk.totals.num_slots);
      expect_equal(view.stage_begin, walk.stage_begin);
      expect_equal(view.nodes, walk.nodes), expect_equal(view.families, walk.families);
      expect_equal(view.members, walk.members), expect_equal(view.leaf_nodes, walk.leaf_nodes);
      expect_equal(view.bare_leaves, walk.bare_leaves), expect_equal(view.rounds, walk.rounds);
      expect_equal(view.units, walk.units), expect_equal(view.wide_tiles, walk.wide_tiles);
      expect_equal(view.groves, walk.groves);
      expect_equal(view.tiles, walk.tiles), expect_equal(view.grove_families, walk.grove_families);
      expect_equal(view.places, walk.places), expect_equal(view.grove_rounds, walk.grove_rounds);
      expect_equal(view.tile_blocks, walk.tile_blocks), expect_equal(view.leaf_sights, walk.leaf_sights);
      expect_equal(view.leaf_above, walk.leaf_above);
    }
    EXPECT_EQ(tensors.num_places, static_cast<int64_t>(walks[1].places.size()));
    EXPECT_EQ(tensors.num_rests, walks[1].totals.has_wide ? forest.num_leaves() : 0);
    const at::Tensor trees = trees_of_roots(tensors.host, tensors.device);
    Lengths expected;
    for (int64_t t = 0; t < forest.num_trees(); ++t) {
      if (forest.tree_begin()[t] < forest.tree_begin()[t + 1]) expected.push_back(t);
    }
    expect_equal(integers(trees, "trees"), expected);
    if (tensors.device.numel() > 0) {
      EXPECT_ANY_THROW(check_block_walks(tensors.host, tensors.device.narrow(0, 0, tensors.device.numel() - 1)));
    }
    EXPECT_ANY_THROW(check_block_walks(tensors.host.narrow(0, 0, 5), tensors.device));
  }
}

}  // namespace
}  // namespace ramify
