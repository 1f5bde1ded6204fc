// What blocks of threads rely on: every family is done once, after what it needs, within the limits of a block.
#include "hierarchy/block_walk.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "generators/random_forest.h"
#include "hierarchy/contraction.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

using Array = std::vector<int64_t>;

// The families of a stage that are wider than a warp: each is alone in its unit, and its children are done before.
void check_wide_tiles(const BlockWalk& walk, size_t stage) {
  std::vector<WideTile> expected;
  for (int64_t u = walk.stage_begin[stage].unit; u < walk.stage_begin[stage + 1].unit; ++u) {
    const BlockUnit& unit = walk.units[u];
    for (int64_t r = unit.round_begin; r < unit.round_end; ++r) {
      for (int64_t f = walk.rounds[r].family_begin; f < walk.rounds[r].family_end; ++f) {
        const int64_t width = walk.nodes[walk.families[f]].num_children;
        if (width <= kWidestNarrowFamily) continue;
        EXPECT_EQ(unit.round_end - unit.round_begin, 1);
        EXPECT_EQ(walk.rounds[r].family_end - walk.rounds[r].family_begin, 1);
        for (int64_t begin = 0; begin < width; begin += kWideTile) expected.push_back({walk.families[f], begin});
      }
    }
  }
  const auto begin = walk.wide_tiles.begin();
  EXPECT_EQ(
      std::vector<WideTile>(begin + walk.stage_begin[stage].wide_tile, begin + walk.stage_begin[stage + 1].wide_tile),
      expected);
}

void check_crown(const BlockWalk& walk) {
  std::vector<int64_t> done(walk.nodes.size(), -1);  // stage and round, as one number that grows
  int64_t now = 0;
  std::vector<int64_t> unit_of(walk.nodes.size(), -1), stage_of(walk.nodes.size(), -1);
  for (size_t s = 0; s + 1 < walk.stage_begin.size(); ++s) {
    for (int64_t u = walk.stage_begin[s].unit; u < walk.stage_begin[s + 1].unit; ++u) {
      for (int64_t r = walk.units[u].round_begin; r < walk.units[u].round_end; ++r, ++now) {
        const BlockRound& round = walk.rounds[r];
        int64_t member = round.member_begin;
        for (int64_t f = round.family_begin; f < round.family_end; ++f) {
          const int64_t n = walk.families[f];
          const BlockNode& node = walk.nodes[n];
          ASSERT_EQ(done[n], -1) << "a family is done twice";
          ASSERT_GE(node.slot, 0);
          done[n] = now, unit_of[n] = u, stage_of[n] = static_cast<int64_t>(s);
          for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
            ASSERT_EQ(walk.members[member++], c);
            if (walk.nodes[c].is_leaf() || done[c] < 0) continue;  // those of groves are done before
            ASSERT_LT(done[c], now);
            ASSERT_TRUE(stage_of[c] < stage_of[n] || unit_of[c] == u) << "units of a stage depend on each other";
          }
        }
        ASSERT_EQ(member, round.member_end);
      }
    }
    check_wide_tiles(walk, s);
  }
}

Array heights(const BlockWalk& walk) {
  Array height(walk.nodes.size());
  for (size_t n = walk.nodes.size(); n-- > 0;) {
    const int64_t parent = walk.nodes[n].parent;
    if (parent >= 0) height[parent] = std::max(height[parent], height[n] + 1);
  }
  return height;
}

// A leaf of a tile of twigs: its twig is as large as fits, and on each level it is with the leaves of its highest
// ancestor of that height.
void check_twig(const BlockWalk& walk, const Array& height, const BlockGrove& grove, const GroveTile& tile,
                int64_t row) {
  const LeafSight& sight = walk.leaf_sights[grove.leaf_begin + row];
  int64_t n = walk.leaf_nodes[grove.leaf_begin + row];
  const auto fits = [&](int64_t node) { return walk.nodes[node].size <= kTileRows && height[node] <= kTwigLevels; };
  for (int64_t level = 0; level < kTwigLevels; ++level) {
    const auto parent = [&] { return walk.nodes[n].parent; };
    while (parent() >= 0 && fits(parent()) && height[parent()] <= level + 1) n = parent();
    const BlockNode& node = walk.nodes[n];
    uint16_t rows = 0;
    for (int64_t leaf = node.first_leaf; leaf < node.first_leaf + node.size; ++leaf) {
      rows |= static_cast<uint16_t>(1 << (leaf - grove.leaf_begin - tile.row));
    }
    ASSERT_EQ(sight.blocks[level], rows) << "level " << level << " of leaf " << grove.leaf_begin + row;
  }
  ASSERT_EQ(grove.leaf_begin + sight.begin, walk.nodes[n].first_leaf);
  ASSERT_EQ(sight.end - sight.begin, walk.nodes[n].size);
  ASSERT_GE(tile.num_levels, height[n]);
}

void check_groves(const BlockWalk& walk, GroveLimits limits) {
  std::vector<int64_t> seen(walk.totals.num_leaves);  // by tiles and places
  bool has_twigs = false;
  const Array height = heights(walk);
  for (const BlockGrove& grove : walk.groves) {
    ASSERT_LE(grove.num_leaf_tiles, limits.tiles);
    ASSERT_LE(grove.num_places, limits.places);
    const bool is_last = &grove == &walk.groves.back();
    const auto end_of = [&](int64_t BlockGrove::*begin, size_t size) {
      return is_last ? static_cast<int64_t>(size) : (&grove)[1].*begin;
    };
    if (const int64_t stride = walk.totals.tile_stride; stride > 0) {  // the tiles of the g-th begin at g · stride
      ASSERT_LE(grove.num_tiles, stride);
      ASSERT_EQ(grove.tile_begin, (&grove - walk.groves.data()) * stride);
      ASSERT_EQ(static_cast<int64_t>(walk.tiles.size()), static_cast<int64_t>(walk.groves.size()) * stride);
    } else {
      ASSERT_EQ(grove.tile_begin + grove.num_tiles, end_of(&BlockGrove::tile_begin, walk.tiles.size()));
    }
    ASSERT_EQ(grove.family_begin + grove.num_families, end_of(&BlockGrove::family_begin, walk.grove_families.size()));
    // what there is room for in the tables of places
    ASSERT_EQ(grove.num_tiles - grove.num_leaf_tiles, (grove.num_places + kTileRows - 1) / kTileRows);
    ASSERT_LE(grove.num_rounds, grove.num_tiles - grove.num_leaf_tiles);
    ASSERT_LE(grove.num_families - grove.num_leaf_families, grove.num_places / 2);
    for (int32_t t = 0; t < grove.num_leaf_tiles; ++t) {
      const GroveTile& tile = walk.tiles[grove.tile_begin + t];
      ASSERT_LE(tile.num_rows, kTileRows);
      for (int32_t row = tile.row; row < tile.row + tile.num_rows; ++row) {
        ++seen[grove.leaf_begin + row];
        const LeafSight& sight = walk.leaf_sights[grove.leaf_begin + row];
        const GroveFamily& family = walk.grove_families[grove.family_begin + sight.family];
        ASSERT_EQ(sight, (LeafSight{static_cast<uint16_t>(family.begin), static_cast<uint16_t>(family.end),
                                    sight.family, static_cast<int16_t>(family.place), sight.blocks}));
        ASSERT_TRUE(family.begin <= row && row < family.end);
        ASSERT_TRUE(tile.key <= family.begin && family.end <= tile.key + tile.num_keys);
        const int64_t place = family.place < 0 ? -1 : grove.place_begin + family.place;
        ASSERT_EQ(walk.leaf_above[grove.leaf_begin + row].place, place);
        if (tile.num_keys <= kTileRows) check_twig(walk, height, grove, tile, row);
        has_twigs |=
            family.begin > tile.row || family.end < tile.row + tile.num_rows || place < 0 || tile.num_levels > 1;
      }
    }
    for (int32_t p = 0; p < grove.num_places; ++p) {
      const GrovePlace& place = walk.places[grove.place_begin + p];
      if (place.leaf_row < 0) continue;
      ++seen[grove.leaf_begin + place.leaf_row];
      ASSERT_EQ(walk.leaf_above[grove.leaf_begin + place.leaf_row].place, grove.place_begin + p);
    }
    for (int32_t r = 0; r < grove.num_rounds; ++r) {
      const GroveRound& round = walk.grove_rounds[grove.round_begin + r];
      ASSERT_LE(round.tile_end - round.tile_begin, walk.totals.round_tiles);
      for (int32_t t = round.tile_begin; t < round.tile_end; ++t) {
        const GroveTile& tile = walk.tiles[grove.tile_begin + t];
        ASSERT_EQ(tile.row % kTileRows, 0);
        ASSERT_TRUE(round.place_begin <= tile.row && tile.row + tile.num_rows <= round.place_end);
      }
    }
  }
  if (!walk.totals.has_wide) {
    ASSERT_EQ(walk.totals.has_twigs != 0, has_twigs);
  }
  // every other leaf is a bare one or a member of the crown
  for (const int64_t n : walk.members) {
    if (walk.nodes[n].is_leaf()) ++seen[walk.nodes[n].first_leaf];
  }
  for (const int64_t n : walk.bare_leaves) ++seen[walk.nodes[n].first_leaf];
  for (size_t leaf = 0; leaf < seen.size(); ++leaf) ASSERT_EQ(seen[leaf], 1) << "leaf " << leaf;
}

// Every tile of leaves is in one block, with all of its family, and every leaf knows what is above it.
void check_tile_blocks(const BlockWalk& walk) {
  auto next = walk.tile_blocks.begin();
  for (size_t g = 0; g < walk.groves.size(); ++g) {
    const BlockGrove& grove = walk.groves[g];
    for (int64_t tile = grove.tile_begin; tile < grove.tile_begin + grove.num_leaf_tiles; ++next) {
      ASSERT_TRUE(next != walk.tile_blocks.end() && next->tile == tile && next->grove == static_cast<int64_t>(g));
      ASSERT_TRUE(0 < next->num_tiles && next->num_tiles <= walk.totals.block_tiles);
      const GroveTile &first = walk.tiles[tile], &last = walk.tiles[tile + next->num_tiles - 1];
      ASSERT_TRUE(first.row == first.key && last.row + last.num_rows == last.key + last.num_keys);
      for (const int64_t end = tile + next->num_tiles; tile < end; ++tile) {
        ASSERT_TRUE(walk.tiles[tile].num_keys <= kTileRows || next->has_wide);
      }
    }
  }
  ASSERT_TRUE(next == walk.tile_blocks.end());
  for (size_t leaf = 0; leaf < walk.leaf_above.size(); ++leaf) {
    // the lowest ancestor with a slot is the root of the leaf's grove, unless it is a family of the crown
    int64_t n = walk.leaf_nodes[leaf];
    while (n >= 0 && walk.nodes[n].slot < 0) n = walk.nodes[n].parent;
    const bool in_crown = std::find(walk.families.begin(), walk.families.end(), n) != walk.families.end();
    const bool has_slot = n >= 0 && !in_crown && walk.nodes[n].parent >= 0;
    ASSERT_EQ(walk.leaf_above[leaf].slot, has_slot ? walk.nodes[n].slot : -1) << "leaf " << leaf;
  }
}

void check(const Forest& forest) {
  const Forest contracted = contract(forest).forest;
  for (const GroveLimits limits : {kNoGroves, kSharedGroves, kGroves}) {
    const BlockWalk walk = make_block_walk(contracted, limits);
    check_crown(walk);
    check_groves(walk, limits);
    check_tile_blocks(walk);
  }
}

TEST(BlockWalk, DoesEverythingOnceAndInOrder) {
  for (const Forest& forest :
       {Forest(), windows(Array{5000, 512, 0, 1}, Branching::parse("16*")), windows(Array{900}, {}),
        windows(Array{700, 64}, Branching::parse("2,4,8,16")), windows(Array{1000}, Branching::parse("3*")),
        windows(Array{90}, Branching::parse("2*"))}) {
    check(forest);
  }
}

TEST(BlockWalk, DoesSoOnRandomTrees) {
  EXPECT_TRUE(rc::check([] { check((*testing::tree_batches(12, {6, 90, 150})).forest()); }));
}

TEST(BlockWalk, FinishesSmallSubtreesInTheirTiles) {
  // two twigs of 2 · 4 leaves a tile, eight to a family of places
  const BlockWalk windowed = make_block_walk(windows(Array{128}, Branching::parse("2,4,8,16")), kSharedGroves);
  ASSERT_EQ(windowed.groves.size(), 1);
  EXPECT_EQ(windowed.groves[0].num_leaf_tiles, 8);
  EXPECT_EQ(windowed.groves[0].num_leaf_families, 16);
  EXPECT_EQ(windowed.groves[0].num_places, 16 + 2);
  for (int t = 0; t < 8; ++t) EXPECT_EQ(windowed.tiles[t].num_levels, 2);
  // a tree of 16 leaves has no places; one of 17 has
  const BlockWalk binary =
      make_block_walk(contract(windows(Array{16, 17}, Branching::parse("2*"))).forest, kSharedGroves);
  ASSERT_EQ(binary.groves.size(), 1);
  EXPECT_EQ(binary.groves[0].num_leaf_families, 2);
  EXPECT_EQ(binary.groves[0].num_places, 2);
  EXPECT_EQ(binary.tiles[0].num_levels, 4);
  EXPECT_EQ(binary.tiles[0].num_rows, 16);
  // families of 16 have one level
  const BlockWalk sixteens =
      make_block_walk(contract(windows(Array{300}, Branching::parse("16*"))).forest, kSharedGroves);
  for (int t = 0; t < sixteens.groves[0].num_leaf_tiles; ++t) EXPECT_EQ(sixteens.tiles[t].num_levels, 1);
}

TEST(BlockWalk, TakesWholeTreesWhereTheyFit) {
  const BlockWalk whole = make_block_walk(windows(Array{512, 4096}, Branching::parse("16*")), kGroves);
  EXPECT_EQ(whole.groves.size(), 2);
  EXPECT_TRUE(whole.units.empty());
  EXPECT_EQ(whole.totals.round_tiles, 16);
  const BlockWalk part = make_block_walk(windows(Array{65536}, Branching::parse("16*")), kGroves);
  EXPECT_EQ(part.groves.size(), 16);
  EXPECT_EQ(part.units.size(), 1);
}

}  // namespace
}  // namespace ramify
