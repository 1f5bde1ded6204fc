// The operation counts: the paper's Table 3, and multiply-adds counted by hand.
#include "ramify/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "generators/error_message.h"

namespace ramify {
namespace {

using testing::error_message;

struct PrintedFigure {
  int64_t tokens;
  double flat, hierarchical;            // MFLOP as printed
  double flat_unit, hierarchical_unit;  // one unit of the last printed digit
};

constexpr PrintedFigure kTable3[] = {
    {264, 214.94, 4.32, 0.01, 0.01},  {54, 8.99, 0.8357, 0.01, 0.0001}, {12, 0.4441, 0.1912, 0.0001, 0.0001},
    {26, 2.08, 0.4132, 0.01, 0.0001}, {55, 9.33, 0.8481, 0.01, 0.0001}, {70, 15.11, 1.29, 0.01, 0.01},
    {38, 4.45, 0.5643, 0.01, 0.0001},
};

TEST(Cost, ReproducesThePapersTable) {
  for (const PrintedFigure& figure : kTable3) {
    const AttentionShape shape = {figure.tokens, 768, 12};
    EXPECT_NEAR(flat_cost(shape).paper_flops / 1e6, figure.flat, figure.flat_unit) << figure.tokens << " tokens";
    EXPECT_NEAR(hierarchical_cost(shape, Branching::parse("2,4,8,16")).paper_flops / 1e6, figure.hierarchical,
                figure.hierarchical_unit)
        << figure.tokens << " tokens";
  }
}

TEST(Cost, CountsMultiplyAddsOfRealWindows) {
  // 5 leaves in windows of 2: families 2, 2, 1 and 3, so 2 + 2 + 0 + 6 pairs; 8 edges.
  const AttentionCost cost = hierarchical_cost({5, 4, 2}, Branching::parse("2"));
  EXPECT_EQ(cost.score_pairs, 10);
  EXPECT_EQ(cost.multiply_adds, 10 * 2 * 4 + 8 * 4 * 4);
  const AttentionCost flat = flat_cost({5, 4, 2});
  EXPECT_EQ(flat.score_pairs, 25);
  EXPECT_EQ(flat.multiply_adds, 25 * 2 * 4);
  EXPECT_EQ(flat.paper_flops, 25 * (4 * 4 + 2));
}

TEST(Cost, CountsThePairsAndEdgesOfTheForestThatWindowsBuild) {
  for (const std::string text : {"", "2", "3,2", "2,4,8,16", "16*", "4,3*", "1,5"}) {
    for (int64_t tokens = 1; tokens < 300; tokens += 7) {
      const Branching branching = Branching::parse(text);
      const Forest forest = windows(std::vector<int64_t>{tokens}, branching);
      int64_t pairs = 0;
      for (int64_t n = 0; n < forest.num_nodes(); ++n) pairs += forest.num_children(n) * (forest.num_children(n) - 1);
      const AttentionCost cost = hierarchical_cost({tokens, 4, 2}, branching);
      EXPECT_EQ(cost.score_pairs, pairs) << tokens << " tokens, " << text;
      EXPECT_EQ(cost.multiply_adds, static_cast<double>(pairs * 2 * 4 + (forest.num_nodes() - 1) * 4 * 4));
    }
  }
}

TEST(Cost, RepeatedWindowsCountLikeWrittenOutOnes) {
  const AttentionShape shape = {1000, 64, 4};
  EXPECT_EQ(hierarchical_cost(shape, Branching::parse("16*")).paper_flops,
            hierarchical_cost(shape, Branching::parse("16,16,16")).paper_flops);
}

TEST(Cost, RejectsBadInput) {
  EXPECT_EQ(error_message([] { flat_cost({0, 4, 2}); }), "flops: tokens is 0; expected at least 1");
  EXPECT_EQ(error_message([] { flat_cost({5, -4, 2}); }), "flops: width is -4; expected at least 1");
  EXPECT_EQ(error_message([] { hierarchical_cost({5, 4, 0}, {}); }), "flops: heads is 0; expected at least 1");
  for (const int64_t tokens : {kMaxLeaves + 1, int64_t{1} << 62}) {
    const std::string expected = "flops: tokens is " + std::to_string(tokens) + "; expected at most 2147483648";
    EXPECT_EQ(error_message([&] { flat_cost({tokens, 4, 2}); }), expected);
    EXPECT_EQ(error_message([&] { hierarchical_cost({tokens, 4, 2}, {}); }), expected);
  }
  EXPECT_EQ(error_message([] {
              hierarchical_cost({5, 4, 2}, {{0}, false});
            }),
            "windows: branching holds 0; every size must be at least 1");
}

TEST(Cost, OfAForestOfWindowsIsThatOfTheWindows) {
  for (const char* windows_text : {"2,4,8", "16*", "3"}) {
    for (const int64_t tokens : {1, 2, 5, 100}) {
      const Branching branching = Branching::parse(windows_text);
      const AttentionShape shape{tokens, 8, 2};
      const AttentionCost expected = hierarchical_cost(shape, branching);
      const AttentionCost cost = forest_cost(shape, windows(std::vector<int64_t>{tokens}, branching));
      EXPECT_EQ(cost.score_pairs, expected.score_pairs) << windows_text << " " << tokens;
      EXPECT_EQ(cost.multiply_adds, expected.multiply_adds) << windows_text << " " << tokens;
    }
  }
  // a family of 2 and one of 3 below a root: 4 + 9 + 4 pairs and the root
  const std::vector<std::vector<int64_t>> segments = {{2, 3}, {2}};
  EXPECT_EQ(forest_cost({5, 4, 2}, from_segments(segments)).paper_flops, 18 * (4 * 4 + 2));
  EXPECT_EQ(forest_cost({5, 4, 2}, Forest()).multiply_adds, 0);
}

}  // namespace
}  // namespace ramify
