// Every way to make a forest: its order, its counts, what it rejects, and how far it scales.
#include "ramify/builders.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "generators/error_message.h"
#include "generators/forest_arrays.h"
#include "generators/random_forest.h"
#include "hierarchy/contraction.h"

namespace ramify {
namespace {

using testing::Array;
using testing::copy;
using testing::equal;
using testing::error_message;
using testing::TreeBatch;

constexpr const char* kTooManyLeaves = ": more than 2147483648 leaves in all";

Forest windows_of(const Array& lengths, const std::string& branching) {
  return windows(lengths, Branching::parse(branching));
}

// The nodes of each level, from the leaves up; all leaves are on one level.
Array level_sizes(const Forest& forest) {
  Array sizes;
  for (int64_t l = forest.num_levels(); l-- > 0;)
    sizes.push_back(forest.level_begin()[l + 1] - forest.level_begin()[l]);
  return sizes;
}

TEST(Branching, ReadsSizesFromTheBottom) {
  EXPECT_EQ(Branching::parse("2,4,8,16").sizes, (Array{2, 4, 8, 16}));
  EXPECT_FALSE(Branching::parse("2,4,8,16").repeat_last);
  EXPECT_EQ(Branching::parse("16*").sizes, Array{16});
  EXPECT_TRUE(Branching::parse("16*").repeat_last);
  EXPECT_EQ(Branching::parse(" 4, 16*").sizes, (Array{4, 16}));
  EXPECT_TRUE(Branching::parse("4,16*").repeat_last);
  EXPECT_TRUE(Branching::parse("").sizes.empty());
}

TEST(Branching, RejectsWhatIsNotAListOfSizes) {
  for (const std::string text :
       {"a", "2,,4", "2,4,", ",2", "2;4", "2.5", "4*,16", "16**", "2x2", "99999999999999999999", "2 4", "+2", "0x10"}) {
    EXPECT_EQ(
        error_message([&] { Branching::parse(text); }),
        "hierarchy: '" + text + "' is not a list of sizes; expected sizes from the bottom up, such as 2,4,8,16 or 16*");
  }
  EXPECT_EQ(error_message([] { Branching::parse("2,0"); }),
            "hierarchy: branching holds 0; every size must be at least 1");
  EXPECT_EQ(error_message([] { Branching::parse("-3"); }),
            "hierarchy: branching holds -3; every size must be at least 1");
  EXPECT_EQ(error_message([] { Branching::parse("*"); }), "hierarchy: branching '*' has no size to repeat");
}

TEST(Windows, BuildsTheDrawnExample) {
  const Forest forest = windows_of({7}, "3,2");
  EXPECT_EQ(copy(forest.first_child()), (Array{1, 3, 5, 6, 9, 12, 13, 13, 13, 13, 13, 13, 13, 13}));
  EXPECT_EQ(copy(forest.level_begin()), (Array{0, 1, 3, 6, 13}));
  EXPECT_EQ(copy(forest.leaf_nodes()), (Array{6, 7, 8, 9, 10, 11, 12}));
}

TEST(Windows, PutsWhatRemainsUnderTheRoot) {
  EXPECT_EQ(level_sizes(windows_of({264}, "2,4,8,16")), (Array{264, 132, 33, 5, 1}));
  EXPECT_EQ(level_sizes(windows_of({12}, "2")), (Array{12, 6, 1}));
  EXPECT_EQ(level_sizes(windows_of({12}, "")), (Array{12, 1}));
  EXPECT_EQ(level_sizes(windows_of({12}, "100,2")), (Array{12, 1}));
}

TEST(Windows, RepeatsUntilOneFamilyIsLeft) {
  EXPECT_EQ(level_sizes(windows_of({1000}, "16*")), (Array{1000, 63, 4, 1}));
  EXPECT_EQ(level_sizes(windows_of({1000}, "4,16*")), (Array{1000, 250, 16, 1}));
  EXPECT_EQ(level_sizes(windows_of({16}, "16*")), (Array{16, 1}));
}

TEST(Windows, KeepsEmptyTreesAndBareLeaves) {
  const Forest forest = windows_of({0, 1, 3, 0}, "2*");
  EXPECT_EQ(copy(forest.tree_begin()), (Array{0, 0, 1, 2, 2}));
  EXPECT_EQ(forest.tree_leaf_begin(), (Array{0, 0, 1, 4, 4}));
  EXPECT_TRUE(forest.is_leaf(0));
  EXPECT_EQ(windows_of({}, "2").num_trees(), 0);
}

TEST(Windows, RejectsBadInput) {
  EXPECT_EQ(error_message([] { windows_of({3, -1}, "2"); }), "windows: length 1 is -1");
  EXPECT_EQ(error_message([] {
              windows(Array{3}, {{2, 0}, false});
            }),
            "windows: branching holds 0; every size must be at least 1");
  EXPECT_EQ(error_message([] { windows(Array{3}, {{}, true}); }), "windows: branching '*' has no size to repeat");
  EXPECT_EQ(error_message([] { windows_of({3}, "1*"); }), "windows: branching '1*' never reaches one family");
}

TEST(Windows, RejectsTooManyLeavesBeforeItBuildsThem) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (const Array& lengths : {Array{kHuge}, Array{kHuge, kHuge, kHuge}, Array{kMaxLeaves, 1}, Array{1, kMaxLeaves},
                               Array{std::numeric_limits<int64_t>::max()}}) {
    EXPECT_EQ(error_message([&] { windows_of(lengths, "2*"); }), std::string("windows") + kTooManyLeaves);
  }
}

TEST(Windows, TakesSizesLargerThanAnyLength) {
  EXPECT_EQ(level_sizes(windows(Array{5}, {{int64_t{1} << 62}, false})), (Array{5, 1}));
}

RC_GTEST_PROP(Windows, HaveCeilingCountsAndFullGroupsButTheLast, ()) {
  const auto lengths = *rc::gen::container<Array>(testing::kTreesPerBatch, rc::gen::inRange<int64_t>(0, 400));
  const auto sizes = *rc::gen::container<Array>(*rc::gen::inRange(0, 4), rc::gen::inRange<int64_t>(1, 9));
  const bool repeat = !sizes.empty() && sizes.back() > 1 && *rc::gen::arbitrary<bool>();
  for (const int64_t length : lengths) {
    const Forest forest = windows(Array{length}, {sizes, repeat});
    RC_ASSERT(forest.num_leaves() == length);
    const Array levels = level_sizes(forest);
    for (size_t l = 0; l + 1 < levels.size(); ++l) {
      const bool rest = l >= sizes.size() && !repeat;
      const int64_t size = rest ? levels[l] : sizes[std::min(l, sizes.size() - 1)];
      RC_ASSERT(levels[l + 1] == (levels[l] + size - 1) / size);
      const int64_t begin = forest.level_begin()[levels.size() - 2 - l];
      for (int64_t n = begin; n < begin + levels[l + 1]; ++n) {
        const bool last = n + 1 == begin + levels[l + 1];
        RC_ASSERT(forest.num_children(n) == (last ? levels[l] - (levels[l + 1] - 1) * size : size));
      }
    }
  }
  std::vector<Forest> pieces;
  for (const int64_t length : lengths) pieces.push_back(windows(Array{length}, {sizes, repeat}));
  RC_ASSERT(equal(windows(lengths, {sizes, repeat}), concatenate(pieces)));
}

TEST(Windows, TakeAtMost24BytesANodeFor10MillionLeaves) {
  const Forest forest = windows_of({10'000'000}, "16*");
  const size_t entries = forest.first_child().size() + forest.level_begin().size() + forest.tree_begin().size() +
                         forest.leaf_nodes().size() + forest.first_leaf().size();
  EXPECT_EQ(forest.num_leaves(), 10'000'000);
  EXPECT_LE(entries * sizeof(int64_t), 24 * static_cast<size_t>(forest.num_nodes()));
}

GridForest grid_windows_of(const std::vector<GridShape>& grids, const std::string& branching) {
  return grid_windows(grids, GridBranching::parse(branching));
}

TEST(GridBranching, ReadsWindows) {
  const GridBranching branching = GridBranching::parse("2x3,4*");
  ASSERT_EQ(branching.sizes.size(), 2);
  EXPECT_EQ(branching.sizes[0].rows, 2);
  EXPECT_EQ(branching.sizes[0].columns, 3);
  EXPECT_EQ(branching.sizes[1].rows, 4);
  EXPECT_EQ(branching.sizes[1].columns, 4);
  EXPECT_TRUE(branching.repeat_last);
}

TEST(GridBranching, RejectsWhatIsNotAListOfWindows) {
  for (const std::string text : {"2x", "x2", "2x2x2", "a", "2,,2"}) {
    EXPECT_EQ(error_message([&] { GridBranching::parse(text); }),
              "hierarchy: '" + text +
                  "' is not a list of sizes; expected sizes of windows from the bottom up, such as 2x2,4x4 or 4x4*");
  }
  EXPECT_EQ(error_message([] { GridBranching::parse("2x0"); }),
            "hierarchy: branching holds 0; every size must be at least 1");
  EXPECT_EQ(error_message([] { GridBranching::parse("*"); }), "hierarchy: branching '*' has no size to repeat");
}

TEST(GridWindows, BuildsTheDrawnExample) {
  const GridForest grid = grid_windows_of({{2, 4}}, "2x2");
  EXPECT_EQ(grid.raster_index, (Array{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(copy(grid.forest.first_child()), (Array{1, 3, 7, 11, 11, 11, 11, 11, 11, 11, 11, 11}));
}

TEST(GridWindows, KeepsEmptyGridsAndSinglePatches) {
  const GridForest grid = grid_windows_of({{0, 5}, {1, 1}, {2, 2}, {3, 0}}, "2");
  EXPECT_EQ(copy(grid.forest.tree_begin()), (Array{0, 0, 1, 2, 2}));
  EXPECT_EQ(grid.raster_index, (Array{0, 1, 2, 3, 4}));
  EXPECT_TRUE(grid.forest.is_leaf(0));
  EXPECT_EQ(grid_windows_of({}, "2").forest.num_trees(), 0);
}

TEST(GridWindows, RejectsBadInput) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(error_message([] { grid_windows_of({{2, 2}, {-1, 3}}, "2"); }), "grid_windows: grid 1 is -1x3");
  EXPECT_EQ(error_message([] {
              grid_windows(std::vector<GridShape>{{2, 2}}, {{{2, 0}}, false});
            }),
            "grid_windows: branching holds 0; every size must be at least 1");
  EXPECT_EQ(error_message([] {
              grid_windows(std::vector<GridShape>{{2, 2}}, {{}, true});
            }),
            "grid_windows: branching '*' has no size to repeat");
  EXPECT_EQ(error_message([] {
              grid_windows_of({{2, 2}}, "1x4*");
            }),
            "grid_windows: a window that repeats needs at least 2 rows and 2 columns to reach one family");
  for (const std::vector<GridShape>& grids :
       {std::vector<GridShape>{{kHuge, kHuge}}, {{kHuge, 1}}, {{1, kHuge}}, {{1, 1}, {1 << 16, 1 << 15}}}) {
    EXPECT_EQ(error_message([&] { grid_windows_of(grids, "2"); }), std::string("grid_windows") + kTooManyLeaves);
  }
}

// Where a patch stands at each level, from the top: windows are read row by row, and so is what is inside them.
std::vector<std::pair<int64_t, int64_t>> window_path(const GridShape& grid, const GridBranching& branching,
                                                     int64_t patch) {
  std::vector<std::pair<int64_t, int64_t>> path = {{patch / grid.columns, patch % grid.columns}};
  GridShape rest = grid;
  for (size_t l = 0; l < branching.sizes.size() || branching.repeat_last; ++l) {
    if (rest.rows == 1 && rest.columns == 1) break;
    const GridShape& window = branching.sizes[std::min(l, branching.sizes.size() - 1)];
    path.push_back({path.back().first / window.rows, path.back().second / window.columns});
    rest = {(rest.rows + window.rows - 1) / window.rows, (rest.columns + window.columns - 1) / window.columns};
  }
  std::reverse(path.begin(), path.end());
  return path;
}

RC_GTEST_PROP(GridWindows, EqualBruteForce, ()) {
  GridBranching branching;
  const int64_t num_sizes = *rc::gen::inRange(1, 4);
  for (int64_t l = 0; l < num_sizes; ++l) {
    branching.sizes.push_back({*rc::gen::inRange<int64_t>(1, 5), *rc::gen::inRange<int64_t>(1, 5)});
  }
  branching.repeat_last =
      branching.sizes.back().rows > 1 && branching.sizes.back().columns > 1 && *rc::gen::arbitrary<bool>();
  std::vector<GridShape> grids;
  for (int64_t g = 0; g < testing::kTreesPerBatch; ++g) {
    grids.push_back({*rc::gen::inRange<int64_t>(0, 20), *rc::gen::inRange<int64_t>(0, 20)});
  }
  const GridForest result = grid_windows(grids, branching);
  const Array parents = result.forest.parents(), begin = result.forest.tree_leaf_begin();
  RC_ASSERT(result.forest.num_trees() == static_cast<int64_t>(grids.size()));
  int64_t offset = 0;
  for (size_t g = 0; g < grids.size(); ++g) {
    const int64_t patches = grids[g].rows * grids[g].columns;
    RC_ASSERT(begin[g + 1] - begin[g] == patches);
    std::vector<std::pair<std::vector<std::pair<int64_t, int64_t>>, int64_t>> expected;
    for (int64_t p = 0; p < patches; ++p) expected.push_back({window_path(grids[g], branching, p), p});
    std::sort(expected.begin(), expected.end());
    for (int64_t i = 0; i < patches; ++i) {
      RC_ASSERT(result.raster_index[offset + i] == offset + expected[i].second);
      if (i == 0) continue;
      // Neighbours share an ancestor exactly where they share a window.
      int64_t a = result.forest.leaf_nodes()[offset + i - 1], b = result.forest.leaf_nodes()[offset + i];
      const auto &path_a = expected[i - 1].first, &path_b = expected[i].first;
      for (size_t level = path_a.size(); level-- > 0; a = parents[a], b = parents[b]) {
        RC_ASSERT((a == b) ==
                  std::equal(path_a.begin(), path_a.begin() + static_cast<int64_t>(level) + 1, path_b.begin()));
      }
    }
    offset += patches;
  }
}

Forest from_segments_of(const std::vector<Array>& levels) {
  return from_segments(levels);
}

TEST(FromSegments, BuildsTheDrawnExample) {
  const Forest forest = from_segments_of({{2, 3, 1}, {2, 1}});
  EXPECT_TRUE(equal(forest, from_nested(Array{2, 2, kItem, kItem, 3, kItem, kItem, kItem, 1, 1, kItem})));
}

TEST(FromSegments, KeepsEmptyTrees) {
  EXPECT_EQ(copy(from_segments_of({{2, 0, 1}}).tree_begin()), (Array{0, 1, 1, 2}));
  EXPECT_EQ(copy(from_segments_of({{2, 1}, {0, 2, 0}}).tree_begin()), (Array{0, 0, 1, 1}));
  EXPECT_EQ(from_segments_of({{}}).num_trees(), 0);
}

TEST(FromSegments, RejectsBadInput) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_EQ(error_message([] { from_segments_of({}); }),
            "from_segments: no levels given; expected at least the leaves of each tree");
  EXPECT_EQ(error_message([] { from_segments_of({{2, -3}}); }), "from_segments: level 0, segment 1 has length -3");
  EXPECT_EQ(error_message([] {
              from_segments_of({{2, 0}, {2}});
            }),
            "from_segments: level 0, segment 1 is empty; only a whole tree may be");
  EXPECT_EQ(error_message([] {
              from_segments_of({{2, 3, 1}, {2}});
            }),
            "from_segments: level 1 covers 2 segments, level 0 has 3");
  EXPECT_EQ(error_message([] {
              from_segments_of({{2, 3}, {2, 1}});
            }),
            "from_segments: level 1 covers 3 segments, level 0 has 2");
  for (const Array& lengths : {Array{kHuge}, Array{kHuge, kHuge}, Array{kMaxLeaves, 1}}) {
    EXPECT_EQ(error_message([&] { from_segments_of({lengths}); }), std::string("from_segments") + kTooManyLeaves);
  }
}

TEST(FromNested, BuildsTheDrawnExample) {
  const Forest forest = from_nested(Array{2, kItem, 2, kItem, kItem, kItem, 0});
  EXPECT_EQ(copy(forest.tree_begin()), (Array{0, 1, 2, 2}));
  EXPECT_EQ(copy(forest.first_child()), (Array{2, 4, 4, 4, 6, 6, 6}));
  EXPECT_EQ(from_nested(Array{}).num_trees(), 0);
}

TEST(FromNested, RejectsBadInput) {
  EXPECT_EQ(error_message([] { from_nested(Array{kItem, -2}); }), "from_nested: entry 1 is -2");
  EXPECT_EQ(error_message([] {
              from_nested(Array{0, kItem, 2, kItem, 0});
            }),
            "from_nested: an empty list inside tree 2; an inner node needs a leaf");
  EXPECT_EQ(error_message([] {
              from_nested(Array{3, kItem});
            }),
            "from_nested: the last tree ends early; 2 items missing");
  EXPECT_EQ(error_message([] { from_nested(Array{int64_t{1} << 62}); }),
            "from_nested: the last tree ends early; 4611686018427387904 items missing");
}

TEST(FromParents, KeepsTheOrderOfTheInput) {
  //     2        4
  //    / \      (a bare leaf)
  //   0   3
  //       |
  //       1
  const ParentForest result = from_parents(Array{2, 3, -1, 2, -1});
  EXPECT_EQ(result.node_of_input, (Array{2, 4, 0, 3, 1}));
  EXPECT_EQ(copy(result.forest.first_child()), (Array{2, 4, 4, 4, 5, 5}));
  EXPECT_EQ(copy(result.forest.tree_begin()), (Array{0, 1, 2}));
  EXPECT_EQ(from_parents(Array{}).forest.num_trees(), 0);
}

TEST(FromParents, RejectsBadInput) {
  EXPECT_EQ(error_message([] {
              from_parents(Array{-1, 2});
            }),
            "from_parents: node 1 has parent 2; expected -1 for a root or a node from 0 to 1");
  EXPECT_EQ(error_message([] { from_parents(Array{-2}); }),
            "from_parents: node 0 has parent -2; expected -1 for a root or a node from 0 to 0");
  EXPECT_EQ(error_message([] { from_parents(Array{0}); }), "from_parents: node 0 is its own ancestor (cycle)");
  const std::string cycle = error_message([] { from_parents(Array{-1, 0, 3, 4, 3, 2}); });
  EXPECT_TRUE(cycle == "from_parents: node 3 is its own ancestor (cycle)" ||
              cycle == "from_parents: node 4 is its own ancestor (cycle)")
      << cycle;
}

RC_GTEST_PROP(FromParents, RoundTripsThroughAnyNumbering, ()) {
  const TreeBatch batch = *testing::tree_batches();
  const Forest forest = batch.forest();
  const Array parents = forest.parents();
  RC_ASSERT(copy(from_parents(parents).forest.first_child()) == copy(forest.first_child()));

  // Numbers that keep the order of siblings but nothing else: depth first, from the last node that a parent has.
  Array number(forest.num_nodes());
  std::iota(number.begin(), number.end(), 0);
  std::mt19937_64 random(*testing::seeds());
  std::shuffle(number.begin(), number.end(), random);
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    std::sort(number.begin() + forest.first_child()[n], number.begin() + forest.first_child()[n + 1]);
  }
  std::sort(number.begin(), number.begin() + forest.tree_begin().back());
  Array renumbered(forest.num_nodes());
  for (int64_t n = 0; n < forest.num_nodes(); ++n) renumbered[number[n]] = parents[n] < 0 ? -1 : number[parents[n]];
  const ParentForest result = from_parents(renumbered);
  RC_ASSERT(copy(result.forest.first_child()) == copy(forest.first_child()));
  for (int64_t n = 0; n < forest.num_nodes(); ++n) RC_ASSERT(result.node_of_input[number[n]] == n);
}

RC_GTEST_PROP(Concatenate, OfThePiecesIsTheWhole, ()) {
  const TreeBatch batch = *testing::tree_batches();
  const auto cut = static_cast<int64_t>(*rc::gen::inRange<size_t>(0, batch.trees.size() + 1));
  const TreeBatch left = {{batch.trees.begin(), batch.trees.begin() + cut}};
  const TreeBatch right = {{batch.trees.begin() + cut, batch.trees.end()}};
  RC_ASSERT(equal(concatenate(std::vector<Forest>{left.forest(), right.forest()}), batch.forest()));
  std::vector<Forest> single;
  for (const auto& tree : batch.trees) single.push_back(from_nested(tree));
  RC_ASSERT(equal(concatenate(single), batch.forest()));
}

TEST(Concatenate, OfNothingIsEmpty) {
  EXPECT_EQ(concatenate(std::vector<Forest>{}).num_trees(), 0);
}

constexpr int64_t kLongChain = 1'000'000;

void expect_chain(const Forest& forest) {
  EXPECT_EQ(forest.num_nodes(), kLongChain);
  EXPECT_EQ(forest.num_leaves(), 1);
  EXPECT_EQ(forest.depth(), kLongChain - 1);
  EXPECT_EQ(contract(forest).forest.num_nodes(), 1);
}

TEST(Depth, ChainOfAMillionNodesBuildsFromParents) {
  Array parents(kLongChain);
  std::iota(parents.begin(), parents.end(), -1);
  expect_chain(from_parents(parents).forest);
  for (int64_t i = 0; i < kLongChain; ++i) parents[i] = i + 1 < kLongChain ? i + 1 : -1;  // the root comes last
  expect_chain(from_parents(parents).forest);
}

TEST(Depth, ChainOfAMillionNodesBuildsFromNestedLists) {
  Array preorder(kLongChain, 1);
  preorder.back() = kItem;
  expect_chain(from_nested(preorder));
}

TEST(Depth, DeepAndManyShallowTreesConcatenate) {
  Array preorder(kLongChain, 1);
  preorder.back() = kItem;
  std::vector<Forest> forests(1000, windows_of({3}, ""));
  forests.push_back(from_nested(preorder));
  EXPECT_EQ(concatenate(forests).num_nodes(), 4000 + kLongChain);
}

TEST(Depth, CombOfDepth20000Builds) {
  constexpr int64_t kDepth = 20'000;
  Array preorder;
  for (int64_t d = 0; d < kDepth; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  const Forest forest = from_nested(preorder);
  EXPECT_EQ(forest.depth(), kDepth);
  EXPECT_EQ(forest.num_leaves(), kDepth + 1);
  EXPECT_EQ(forest.leaf_counts()[0], kDepth + 1);
  EXPECT_EQ(contract(forest).forest.num_nodes(), forest.num_nodes());
}

}  // namespace
}  // namespace ramify
