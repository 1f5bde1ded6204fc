// The CUDA kernels against the definition: every case, storage and shape, with and without groves, and the same bits
// every time.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/cuda_case.h"

namespace ramify {
namespace {

using cpu::Storage;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::AttentionMode;
using testing::CpuOutcome;
using testing::CudaCase;
using testing::Groves;
using testing::kStorages;
using testing::NamedForest;
using Array = std::vector<int64_t>;
using Numbers = std::vector<double>;
using Layout = testing::StoredRows::Layout;

class CudaAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (!cuda::is_built()) GTEST_SKIP() << "built without a CUDA compiler";
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no CUDA device";
  }
};

double norm(const Numbers& values) {
  double sum = 0;
  for (const double value : values) sum += std::isfinite(value) ? value * value : 0;
  return std::sqrt(sum);
}

// How far an array is from the expected one, as a part of what is allowed: 2 roundings to its storage (3 for gradients)
// and float32's errors, over all entries. Infinite for what must be equal and is not.
double error_of(const Numbers& actual, const Numbers& expected, Storage storage, double roundings, double sums) {
  if (actual.size() != expected.size()) return INFINITY;
  const double unit = storage == Storage::float32 ? 0 : storage == Storage::bfloat16 ? 0x1p-8 : 0x1p-11;
  double squares = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const double difference = actual[i] - expected[i];
    if (!std::isfinite(difference)) return INFINITY;
    squares += difference * difference;
  }
  if (squares == 0) return 0;
  const double tiny = 1e-6 * std::sqrt(static_cast<double>(expected.size()));
  return std::sqrt(squares) / (roundings * unit / 2 * norm(expected) + sums * norm(expected) + tiny);
}

std::string flaw_of(const AttentionCase& c, Storage storage, uint64_t seed, Groves groves = Groves::with,
                    Layout layout = Layout::dense, double sums = 2e-6) {
  AttentionArrays arrays = random_arrays(c, seed);
  CudaCase cuda_case(c, arrays, storage, groves, layout);
  const CpuOutcome outcome = cuda_case.run();
  if (!outcome.is_clean) return "something was written outside its array";
  if (cuda_case.run().bits != outcome.bits) return "other bits in a second run";
  const reference::AttentionParams params = params_of(c, arrays);
  const reference::AttentionResult result = attention(params);
  const auto gradients = attention_backward(params, arrays.grad_out, arrays.grad_energy);
  const std::pair<const char*, double> errors[] = {
      {"out", error_of(outcome.out, result.out, storage, 2, sums)},
      // the means of a grove's nodes are two numbers of the half type
      {"energy",
       error_of(outcome.energy, result.energy, Storage::float32, 0, storage == Storage::float32 ? sums : 5 * sums)},
      {"gradient of q", error_of(outcome.q, gradients.q, storage, 3, 5 * sums)},
      {"gradient of k", error_of(outcome.k, gradients.k, storage, 3, 5 * sums)},
      {"gradient of v", error_of(outcome.v, gradients.v, storage, 3, 5 * sums)},
      {"gradient of positions", error_of(outcome.positions, gradients.positions, Storage::float32, 0, 5 * sums)}};
  std::string flaw;
  static const bool is_verbose = std::getenv("RAMIFY_CUDA_ERRORS") != nullptr;
  for (const auto& [name, error] : errors) {
    if (is_verbose) std::printf("ERR %s %d %.3f\n", name, static_cast<int>(storage), error);
    if (!(error <= 1)) flaw += std::string(name) + " is off by " + std::to_string(error) + " of what is allowed; ";
  }
  return flaw;
}

std::vector<AttentionMode> modes() {
  std::vector<AttentionMode> result;
  for (const AttentionMode& mode : testing::cpu_modes()) {
    cuda::AttentionParams params;
    params.dim = 1, params.tie = mode.tie, params.causal = mode.causal;
    if (!cuda::why_not(params)) result.push_back(mode);
  }
  return result;
}

bool applies(const AttentionCase& c) {
  cuda::AttentionParams params;
  params.dim = c.dim, params.value_dim = c.value_dim, params.tie = c.mode.tie, params.causal = c.mode.causal;
  return testing::applies_to_cpu(c) && !cuda::why_not(params);
}

AttentionCase case_of(const NamedForest& named, const AttentionMode& mode) {
  AttentionCase c;
  c.name = named.name, c.forest = named.forest, c.mode = mode;
  return c;
}

Array comb(int64_t depth) {
  Array preorder;
  for (int64_t d = 0; d < depth; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  return preorder;
}

// A family of `members` trees in turn, in preorder.
Array family_of(int64_t count, const std::vector<Array>& members) {
  Array preorder = {count};
  for (int64_t i = 0; i < count; ++i) {
    const Array& member = members[i % members.size()];
    preorder.insert(preorder.end(), member.begin(), member.end());
  }
  return preorder;
}

const Array kLeaf = {kItem}, kPair = {2, kItem, kItem}, kTriple = {3, kItem, kItem, kItem}, kChain = {1, 1, kItem};
// Four levels of families in six leaves, which are children on each.
const Array kTwig = {2, kItem, 2, 3, kItem, 2, kItem, kItem, kItem, kItem};

// Trees of all kinds, from those that fit one block to combs and wide families.
std::vector<NamedForest> forests() {
  Array beside = {0};
  for (const Array& tree : {kLeaf, kPair, comb(40), kLeaf, family_of(4, {family_of(20, {kTriple}), kLeaf}), kChain}) {
    beside.insert(beside.end(), tree.begin(), tree.end());
  }
  const Array sentence = family_of(5, {kLeaf}), paragraph = family_of(3, {sentence, family_of(11, {kLeaf}), kPair});
  Array twigs = kTwig;
  for (const Array& tree : {family_of(9, {kTwig, kPair, kLeaf, family_of(4, {kPair, kLeaf})}),
                            family_of(5, {family_of(2, {kTwig, kTriple}), kTwig}), comb(15), comb(4), kTriple}) {
    twigs.insert(twigs.end(), tree.begin(), tree.end());
  }
  // groves of several trees, which share tables but no tiles, with leaves among inner nodes
  Array small_trees;
  for (int64_t i = 0; i < 3; ++i) {
    for (const Array& tree : {family_of(4, {kTwig, sentence, kLeaf}), kLeaf, family_of(16, {kLeaf}),
                              family_of(2, {family_of(5, {family_of(4, {kPair}), kLeaf}), family_of(16, {kLeaf})})}) {
      small_trees.insert(small_trees.end(), tree.begin(), tree.end());
    }
  }
  return {
      {"sixteens", windows(Array{300, 64, 65, 16}, Branching::parse("16*"))},
      {"whole_512", windows(Array{512, 300}, Branching::parse("16*"))},
      {"larger_than_small", windows(Array{514, 30}, Branching::parse("16*"))},
      {"small_trees", from_nested(small_trees)},
      {"many_leaves", windows(Array{1100}, Branching::parse("16*"))},
      {"binary", windows(Array{130}, Branching::parse("2*"))},
      {"mixed_windows", windows(Array{200, 90, 300}, Branching::parse("2,4,8,16"))},
      {"deep_comb", from_nested(comb(150))},
      {"sentences", from_nested(family_of(3, {family_of(4, {family_of(19, {kLeaf}), family_of(40, {kLeaf}), kPair}),
                                              family_of(2, {family_of(7, {kLeaf}), kLeaf}), family_of(17, {kLeaf})}))},
      {"short_sentences", from_nested(family_of(7, {paragraph, family_of(2, {sentence, kTriple}), sentence}))},
      {"twigs", from_nested(twigs)},
      {"twigs_of_two", windows(Array{32, 200}, Branching::parse("4,4*"))},
      // eleven tiles of places in one round
      {"many_places", from_nested(family_of(11, {family_of(16, {kLeaf, kLeaf, kLeaf, kPair})}))},
      {"twigs_and_wide",
       from_nested(family_of(4, {family_of(40, {kLeaf}), family_of(3, {kTwig, kPair}), kLeaf, kTwig}))},
      // three tiles each, so that a block of eight takes two
      {"wide_families", from_nested(family_of(6, {family_of(35, {kLeaf})}))},
      {"wide_family", windows(Array{200, 3}, {})},
      {"wider_than_groves", windows(Array{300}, {})},
      {"wide_of_families", from_nested(family_of(70, {kTriple, kLeaf, kPair}))},
      {"leaves_in_the_crown", from_nested(family_of(7, {kLeaf, family_of(33, {kPair, kLeaf}), kLeaf, kTriple}))},
      {"beside_others", from_nested(beside)},
  };
}

TEST_F(CudaAttention, AgreesOnTheListOfCases) {
  for (const AttentionCase& c : testing::attention_cases()) {
    if (!applies(c)) continue;
    for (const Storage storage : kStorages) {
      EXPECT_EQ(flaw_of(c, storage, 1), "") << c << " " << ::testing::PrintToString(storage);
    }
  }
}

class CudaForests : public CudaAttention, public ::testing::WithParamInterface<NamedForest> {};

TEST_P(CudaForests, AgreeInEveryMode) {
  for (const AttentionMode& mode : modes()) {
    AttentionCase c = case_of(GetParam(), mode);
    c.heads = 2, c.key_heads = 1, c.dim = 20, c.value_dim = 9;
    const Storage storage = kStorages[mode.include_self + (mode.causal == Causal::none ? 0 : 1)];
    EXPECT_EQ(flaw_of(c, storage, 2), "") << c << " " << ::testing::PrintToString(storage);
  }
}

// 64 channels in half types, without positions.
TEST_P(CudaForests, AgreeInGroves) {
  for (const AttentionMode& mode : modes()) {
    if (mode.tie != Tie::block) continue;
    AttentionCase c = case_of(GetParam(), mode);
    c.heads = c.key_heads = 2, c.dim = c.value_dim = 64, c.position_dim = 0;
    for (const Storage storage : {Storage::bfloat16, Storage::float16}) {
      for (const Groves groves : {Groves::small, Groves::with}) {
        EXPECT_EQ(flaw_of(c, storage, 3, groves), "") << c << " " << ::testing::PrintToString(storage);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaForests, ::testing::ValuesIn([] {
                           std::vector<NamedForest> all = forests();
                           for (const auto& more : {testing::degenerate_forests(), testing::ordinary_forests()}) {
                             all.insert(all.end(), more.begin(), more.end());
                           }
                           return all;
                         }()),
                         [](const auto& forest) { return forest.param.name; });

struct Shape {
  int64_t dim, value_dim, heads, key_heads, position_dim;
};

// What float32 sums over the channels of a score may be off by.
double error_of_sums(const Shape& shape) {
  return 2e-6 *
         std::max(1.0, (std::sqrt(static_cast<double>(shape.dim)) + static_cast<double>(shape.position_dim)) / 8);
}

TEST_F(CudaAttention, AgreesForAnyDimensionsAndHeads) {
  const Forest forest = from_nested(
      family_of(3, {family_of(66, {kLeaf}), family_of(3, {kPair, kChain, kTriple}), kLeaf, family_of(2, {kTriple})}));
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1, 1, 1},
                                               {3, 0, 4, 2, 2},
                                               {33, 64, 1, 1, 3},
                                               {64, 65, 3, 1, 40},
                                               {128, 128, 2, 1, 0},
                                               {256, 256, 1, 1, 1}}) {
    for (const AttentionMode& mode : modes()) {
      for (const Storage storage : kStorages) {
        AttentionCase c = case_of({"all_kinds", forest}, mode);
        c.dim = shape.dim, c.value_dim = shape.value_dim, c.heads = shape.heads, c.key_heads = shape.key_heads;
        c.position_dim = shape.position_dim;
        EXPECT_EQ(flaw_of(c, storage, 4, Groves::with, Layout::dense, error_of_sums(shape)), "")
            << c << " dim=" << c.dim << "/" << c.value_dim << " heads=" << c.heads << "/" << c.key_heads << " "
            << ::testing::PrintToString(storage);
      }
    }
  }
}

// Families of more than a warp's lanes, of leaves and of inner nodes, below a root and as trees of their own.
TEST_F(CudaAttention, AgreesInWideFamilies) {
  const Array inner = family_of(67, {kTriple, kLeaf, kPair});
  Array preorder = family_of(4, {inner, family_of(33, {kLeaf}), kLeaf, kPair});
  preorder.insert(preorder.end(), inner.begin(), inner.end());
  const Array flat = family_of(130, {kLeaf});
  preorder.insert(preorder.end(), flat.begin(), flat.end());
  const NamedForest named = {"wide", from_nested(preorder)};
  for (const Shape& shape : std::vector<Shape>{{20, 9, 2, 1, 5},
                                               {5, 0, 1, 1, 0},
                                               {64, 64, 1, 1, 0},
                                               {70, 128, 1, 1, 70},
                                               {130, 3, 1, 1, 0},
                                               {3, 200, 1, 1, 0},
                                               {3, 5, 1, 1, 300}}) {
    for (const AttentionMode& mode : modes()) {
      if (mode.tie != Tie::block) continue;
      AttentionCase c = case_of(named, mode);
      c.dim = shape.dim, c.value_dim = shape.value_dim, c.heads = shape.heads, c.key_heads = shape.key_heads;
      c.position_dim = shape.position_dim;
      const Storage storage = kStorages[(mode.include_self + 2 * (mode.causal == Causal::none) + shape.heads) % 3];
      EXPECT_EQ(flaw_of(c, storage, 6, Groves::with, Layout::rows_apart, error_of_sums(shape)), "")
          << c << " dim=" << c.dim << "/" << c.value_dim << " " << ::testing::PrintToString(storage);
    }
  }
}

// With whole lines between rows and 64 channels in groves, of which the second forest has small ones.
TEST_F(CudaAttention, TakesAnyStrides) {
  const NamedForest forests[] = {
      {"ragged", from_nested(family_of(3, {family_of(19, {kLeaf}), kPair, kChain, kTriple}))},
      {"small", from_nested(family_of(5, {kTwig, kLeaf, family_of(16, {kLeaf})}))}};
  for (const AttentionMode& mode : modes()) {
    for (const int64_t dim : {20, 64}) {
      for (const Layout layout : {Layout::rows_apart, Layout::lines_apart, Layout::heads_first}) {
        for (const NamedForest& named : forests) {
          AttentionCase c = case_of(named, mode);
          c.heads = c.key_heads = 2, c.dim = c.value_dim = dim, c.position_dim = 0;
          EXPECT_EQ(flaw_of(c, Storage::bfloat16, 5, Groves::with, layout), "") << c;
        }
      }
    }
  }
}

// One NaN in each tree in turn.
void expect_nan_in_its_tree(const NamedForest& named) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const Array begin = named.forest.tree_leaf_begin();
  for (const AttentionMode& mode : modes()) {
    for (const int64_t dim : {3, 64}) {
      AttentionCase c = case_of(named, mode);
      c.heads = c.key_heads = 1, c.dim = c.value_dim = dim, c.position_dim = 0;
      AttentionArrays arrays = random_arrays(c, 8);
      const CpuOutcome clean = CudaCase(c, arrays, Storage::bfloat16).run();
      for (int64_t tree = 0; tree < c.forest.num_trees(); ++tree) {
        AttentionArrays bad = arrays;
        const int64_t leaf = (begin[tree] + begin[tree + 1]) / 2;
        bad.q[leaf * dim] = bad.k[leaf * dim] = bad.v[leaf * dim] = bad.grad_out[leaf * dim] = kNaN;
        bad.grad_energy[tree] = kNaN;
        const CpuOutcome outcome = CudaCase(c, bad, Storage::bfloat16).run();
        const std::pair<const Numbers&, const Numbers&> pairs[] = {
            {outcome.out, clean.out}, {outcome.q, clean.q}, {outcome.k, clean.k}, {outcome.v, clean.v}};
        for (const auto& [found, wanted] : pairs) {
          for (int64_t i = 0; i < static_cast<int64_t>(found.size()); ++i) {
            const bool is_here = begin[tree] * dim <= i && i < begin[tree + 1] * dim;
            if (is_here) continue;
            ASSERT_EQ(found[i], wanted[i]) << c << " tree " << tree;
          }
        }
        const bool sees_something = begin[tree + 1] - begin[tree] > 1 || mode.include_self;
        EXPECT_EQ(std::isnan(outcome.out[leaf * dim]), sees_something) << c << " tree " << tree;
        EXPECT_EQ(std::isnan(outcome.energy[tree]), sees_something) << c << " tree " << tree;
      }
    }
  }
}

TEST_F(CudaAttention, KeepsNaNInItsTree) {
  Array small, preorder;
  for (const Array& tree :
       {kTriple, kLeaf, family_of(3, {kPair, kTriple, kLeaf}), family_of(3, {kTwig, kLeaf, comb(9)}),
        family_of(4, {kLeaf, kPair}), family_of(2, {family_of(16, {kLeaf})}), kLeaf}) {
    small.insert(small.end(), tree.begin(), tree.end());
  }
  for (const Array& tree : {kTriple, kLeaf, family_of(3, {kPair, kTriple, kLeaf}), comb(30), family_of(66, {kLeaf}),
                            family_of(4, {kLeaf, kPair}), kLeaf}) {
    preorder.insert(preorder.end(), tree.begin(), tree.end());
  }
  expect_nan_in_its_tree({"small_trees", from_nested(small)});
  expect_nan_in_its_tree({"trees", from_nested(preorder)});
}

// What is done in one launch has no crown, no wide families, and something above its twigs. Two blocks of 512 leaves
// must fit a multiprocessor, which they do from sm_90 on.
TEST_F(CudaAttention, TakesSmallGrovesWhereTheyAre) {
  int shared_memory = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&shared_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), cudaSuccess);
  const bool has_room = shared_memory >= 227 << 10;  // from sm_90 on
  const std::pair<NamedForest, bool> forests[] = {
      {{"largest", windows(Array{512, 3}, Branching::parse("16*"))}, true},
      {{"larger", windows(Array{514, 3}, Branching::parse("16*"))}, false},
      {{"ragged", from_nested(family_of(3, {kTwig, kLeaf, family_of(16, {kLeaf})}))}, true},
      {{"twig", from_nested(kTwig)}, false},
      {{"wide", from_nested(family_of(3, {kTwig, kLeaf, family_of(17, {kLeaf})}))}, false},
      {{"crown", from_nested(family_of(17, {family_of(16, {kLeaf})}))}, false}};
  for (const auto& [named, is_small] : forests) {
    AttentionCase c = case_of(named, {});
    c.heads = c.key_heads = 1, c.dim = c.value_dim = 64, c.position_dim = 0;
    AttentionArrays arrays = random_arrays(c, 10);
    EXPECT_EQ(cuda::takes_small_groves(CudaCase(c, arrays, Storage::bfloat16).params()), is_small && has_room) << c;
  }
}

// Scores of 1e4 and more: each exponential would overflow or vanish on its own.
TEST_F(CudaAttention, TakesScoresThatOverflowExponentials) {
  for (const NamedForest& named : forests()) {
    for (const AttentionMode& mode : modes()) {
      AttentionCase c = case_of(named, mode);
      c.heads = c.key_heads = 1, c.dim = c.value_dim = 64, c.position_dim = 0;
      AttentionArrays arrays = random_arrays(c, 9);
      for (double& value : arrays.q) value *= 100;
      for (double& value : arrays.k) value *= 100;
      std::fill(arrays.v.begin(), arrays.v.end(), 1.0);
      const CpuOutcome outcome = CudaCase(c, arrays, Storage::bfloat16).run();
      const Array begin = c.forest.tree_leaf_begin();
      for (int64_t t = 0; t < c.forest.num_trees(); ++t) {
        const bool sees_something = begin[t + 1] - begin[t] > 1 || mode.include_self;
        for (int64_t i = begin[t] * 64; i < begin[t + 1] * 64; ++i) {
          ASSERT_NEAR(outcome.out[i], sees_something, 1e-2) << c << " entry " << i;  // weights sum to one
        }
      }
      for (const Numbers* values : {&outcome.q, &outcome.k, &outcome.v}) {
        EXPECT_TRUE(std::all_of(values->begin(), values->end(), [](double x) { return std::isfinite(x); })) << c;
      }
    }
  }
}

}  // namespace
}  // namespace ramify
