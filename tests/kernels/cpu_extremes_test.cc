// The fused CPU kernels where float32 ends: NaN, infinities, scores that overflow, numbers that count as 0.
#include <gtest/gtest.h>

#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu_comparison.h"

namespace ramify::testing {
namespace {

TEST(FlushDenormals, TinyNumbersAreZeroWhileItLives) {
  const volatile float tiny = 1e-39F;
  const volatile float one = 1;
  {
    const cpu::FlushDenormals flush;
    EXPECT_EQ(tiny * one, 0);
    EXPECT_EQ(1e-30F * one * 1e-9F, 0);
  }
  EXPECT_GT(tiny * one, 0);
}

TEST_F(CpuAttention, KeepsNaNInItsTree) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Array preorder;
  for (const Array& tree : {kTriple, kLeaf, family_of(3, {kPair, kTriple, kLeaf}), comb(70), family_of(66, {kLeaf}),
                            family_of(4, {kLeaf, kPair}), kLeaf}) {
    preorder.insert(preorder.end(), tree.begin(), tree.end());
  }
  const Forest forest = from_nested(preorder);
  const Array begin = forest.tree_leaf_begin();
  for (const AttentionMode& mode : cpu_modes()) {
    AttentionCase c = case_of(forest, mode);
    AttentionArrays arrays = random_arrays(c, 8);
    const CpuOutcome clean = CpuCase(c, arrays, Storage::float32).run(make_threads(1));
    for (int64_t tree = 0; tree < forest.num_trees(); ++tree) {
      AttentionArrays bad = arrays;
      const int64_t leaf = (begin[tree] + begin[tree + 1]) / 2;
      bad.q[leaf * c.heads * c.dim] = bad.k[leaf * c.dim] = bad.v[leaf * c.value_dim] = kNaN;
      bad.grad_out[leaf * c.heads * c.value_dim] = bad.grad_energy[tree * c.heads] = kNaN;
      const CpuOutcome outcome = CpuCase(c, bad, Storage::float32).run(make_threads(1));
      const auto same_elsewhere = [&](const Numbers& a, const Numbers& b, const Array& bounds) {
        const auto width = bounds.back() == 0 ? 0 : static_cast<int64_t>(a.size()) / bounds.back();
        for (int64_t i = 0; i < static_cast<int64_t>(a.size()); ++i) {
          const bool is_here = bounds[tree] * width <= i && i < bounds[tree + 1] * width;
          if (!is_here && a[i] != b[i]) return false;
        }
        return true;
      };
      EXPECT_TRUE(same_elsewhere(outcome.out, clean.out, begin)) << c << " tree " << tree;
      EXPECT_TRUE(same_elsewhere(outcome.q, clean.q, begin)) << c << " tree " << tree;
      EXPECT_TRUE(same_elsewhere(outcome.k, clean.k, begin)) << c << " tree " << tree;
      EXPECT_TRUE(same_elsewhere(outcome.v, clean.v, begin)) << c << " tree " << tree;
      const bool sees_something = begin[tree + 1] - begin[tree] > 1 || mode.include_self;
      EXPECT_EQ(std::isnan(outcome.out[leaf * c.heads * c.value_dim]), sees_something) << c << " tree " << tree;
      EXPECT_EQ(std::isnan(outcome.energy[tree * c.heads]), sees_something) << c << " tree " << tree;
    }
  }
}

// Where the definition has finite numbers there are no others, and so are outputs elsewhere; empty: nowhere.
std::string stray(const char* name, const Numbers& actual, const Numbers& expected, Storage storage, bool is_output) {
  Numbers finite = actual, finite_expected = expected;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isfinite(expected[i])) continue;
    const bool is_same = std::isnan(expected[i]) ? std::isnan(actual[i]) : actual[i] == expected[i];
    if (is_output && !is_same) return std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(actual[i]);
    finite[i] = finite_expected[i] = 0;
  }
  return difference(name, finite, finite_expected, storage, 3e-5);
}

// A leaf's NaN or infinity in v, a NaN in q, or one in the gradient of its output, reaches what depends on it and
// nothing else.
TEST_F(CpuAttention, KeepsBrokenRowsFromWhatDoesNotDependOnThem) {
  const std::vector<Forest> forests = {
      from_nested(family_of(3, {family_of(66, {kLeaf}), family_of(3, {kPair, kTriple, kChain}), kLeaf})),
      windows(Array{35, 20}, Branching::parse("16*")), windows(Array{70}, Branching::parse("2,4,8,16"))};
  std::vector<AttentionMode> modes = cpu_modes();
  for (const AttentionMode& mode : window_modes()) {
    if (mode.window == 2 || mode.window == 40) modes.push_back(mode);
  }
  uint64_t seed = 0;
  for (const Forest& forest : forests) {
    for (const AttentionMode& mode : modes) {
      for (const Storage storage : kStorages) {
        AttentionCase c = case_of(forest, mode);
        c.dim = c.value_dim = 32;  // what products read in halves
        ++seed;
        c.position_dim = mode.window == 0 && seed % 2 == 0 ? 2 : 0;
        for (const double broken :
             {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
          AttentionArrays arrays = random_arrays(c, seed);
          const int64_t leaf = (seed * 7 + 3) % forest.num_leaves(), other = (seed * 5 + 1) % forest.num_leaves();
          for (double& value : arrays.q) value /= 4;
          const bool is_value = std::isinf(broken) || seed % 3 > 0;
          (is_value ? arrays.v[leaf * c.value_dim * c.key_heads] : arrays.q[leaf * c.dim * c.heads]) = broken;
          arrays.grad_out[(other * c.heads + 1) * c.value_dim + 1] = broken;
          const CpuOutcome outcome = CpuCase(c, arrays, storage).run(make_threads(1));
          const reference::AttentionParams params = params_of(c, arrays);
          const auto gradients = attention_backward(params, arrays.grad_out, arrays.grad_energy);
          const std::string where = ::testing::PrintToString(storage) + ", leaf " + std::to_string(leaf) + " of " +
                                    std::to_string(forest.num_leaves());
          EXPECT_EQ(stray("out", outcome.out, attention(params).out, storage, is_value), "") << c << " " << where;
          EXPECT_EQ(stray("gradient of q", outcome.q, gradients.q, storage, false), "") << c << " " << where;
          EXPECT_EQ(stray("gradient of k", outcome.k, gradients.k, storage, false), "") << c << " " << where;
          EXPECT_EQ(stray("gradient of v", outcome.v, gradients.v, storage, false), "") << c << " " << where;
        }
      }
    }
  }
}

// Scores of 1e4 and more: each exponential would overflow or vanish on its own, and sums of scores of 1e37 as well.
TEST_F(CpuAttention, TakesScoresThatOverflowExponentials) {
  for (const AttentionMode& mode : cpu_modes()) {
    for (const double size : {100.0, -100.0, 1e10, 2e18}) {
      AttentionCase c = case_of(size > 1e10 ? windows(Array{16, 150}, Branching::parse("2*")) : all_kinds(), mode);
      c.value_dim = 1, c.position_dim = 0;
      AttentionArrays arrays = random_arrays(c, 9);
      for (double& value : arrays.q) value *= size;
      for (double& value : arrays.k) value *= std::abs(size);
      std::fill(arrays.v.begin(), arrays.v.end(), 1.0);
      const CpuOutcome outcome = CpuCase(c, arrays, Storage::float32).run(make_threads(1));
      const Array begin = c.forest.tree_leaf_begin();
      for (int64_t t = 0; t < c.forest.num_trees(); ++t) {
        const bool sees_something = begin[t + 1] - begin[t] > 1 || mode.include_self;
        for (int64_t i = begin[t] * c.heads; i < begin[t + 1] * c.heads; ++i) {
          EXPECT_NEAR(outcome.out[i], sees_something, 1e-5) << c << " row " << i;  // weights sum to one
        }
      }
      for (const Numbers* values : {&outcome.q, &outcome.k, &outcome.v}) {
        EXPECT_TRUE(std::all_of(values->begin(), values->end(), [](double x) { return std::isfinite(x); })) << c;
      }
      const Numbers energy = attention(params_of(c, arrays)).energy;
      EXPECT_EQ(difference("energy", outcome.energy, energy, Storage::float32), "") << c;
    }
  }
}

// Neighbours that are nearly opposite have large scores and small means: those of inner nodes must not come from these
// scores, whose rounding is larger than all that is left.
TEST_F(CpuAttention, IsPreciseWhereNeighboursNearlyCancel) {
  for (const char* branching : {"2,4,8", "2*", "2,3*"}) {
    for (const AttentionMode& mode : cpu_modes()) {
      if (mode.tie == Tie::none) continue;  // leaves look for themselves there
      AttentionCase c = case_of(windows(Array{64, 9}, Branching::parse(branching)), mode);
      c.dim = 64, c.position_dim = 0;
      AttentionArrays arrays = random_arrays(c, 14);
      for (Numbers* rows : {&arrays.q, &arrays.k}) {
        const int64_t width = rows == &arrays.q ? c.heads * c.dim : c.key_heads * c.dim;
        for (size_t i = 0; i < rows->size(); ++i) (*rows)[i] += static_cast<int64_t>(i) / width % 2 == 0 ? 8 : -8;
      }
      const CpuOutcome outcome = CpuCase(c, arrays, Storage::float32).run(make_threads(1));
      EXPECT_EQ(difference(outcome, c, arrays, Storage::float32, 3e-6), "") << c << " " << branching;
    }
  }
}

// Small integers have exact scores, far apart or equal: weights are those of the largest alone.
TEST_F(CpuAttention, IsExactWhereScoresAreFarApart) {
  for (const AttentionMode& mode : cpu_modes()) {
    AttentionCase c = case_of(windows(Array{200, 40}, {}), mode);
    c.dim = 1, c.position_dim = 0;
    AttentionArrays arrays = random_arrays(c, 10);
    std::mt19937_64 random(10);
    for (double& value : arrays.q) value = std::uniform_int_distribution<>(0, 1)(random) ? 200 : -200;
    for (double& value : arrays.k) value = std::uniform_int_distribution<>(-50, 50)(random);
    const CpuOutcome outcome = CpuCase(c, arrays, Storage::float32).run(make_threads(1));
    EXPECT_EQ(difference("out", outcome.out, attention(params_of(c, arrays)).out, Storage::float32), "") << c;
  }
}

}  // namespace
}  // namespace ramify::testing
