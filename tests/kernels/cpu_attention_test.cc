// The fused CPU kernels against the definition: every case, storage, shape and instruction set, and the same bits
// whatever the number of threads.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <string>

#include "generators/random_forest.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu_case.h"

namespace ramify {
namespace {

using cpu::Storage;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::AttentionMode;
using testing::CpuCase;
using testing::CpuOutcome;
using testing::kStorages;
using testing::make_threads;
using testing::NamedForest;
using Array = std::vector<int64_t>;
using Numbers = std::vector<double>;
using Layout = testing::StoredRows::Layout;

// Whether the machine has an instruction set that RAMIFY_CPU_TARGET names.
bool machine_has(const std::string& target) {
#if defined(__x86_64__)
  if (target == "avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  if (target == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return target == "sse4" && __builtin_cpu_supports("sse4.2");
#else
  return target == "neon";
#endif
}

class CpuAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::is_supported()) GTEST_SKIP() << "no instruction set of this machine is among those compiled";
    const char* wish = std::getenv("RAMIFY_CPU_TARGET");
    if (!wish || !*wish) return;
    if (!machine_has(wish)) GTEST_SKIP() << "this machine has no " << wish;
    ASSERT_STREQ(cpu::target_name(), wish);
  }
};
class CpuCases : public CpuAttention {};  // those that take seconds

double largest(const Numbers& values) {
  double result = 0;
  for (const double value : values) result = std::isfinite(value) ? std::max(result, std::abs(value)) : result;
  return result;
}

// Where an array is further from the expected one than its storage rounds and float32 sums are off; empty: nowhere.
// `sums` is the latter, as a part of the largest entry.
std::string difference(const char* name, const Numbers& actual, const Numbers& expected, Storage storage,
                       double sums = 1e-5) {
  if (actual.size() != expected.size()) return std::string(name) + " has another size";
  const double unit = storage == Storage::float32 ? 0 : storage == Storage::bfloat16 ? 0x1p-8 : 0x1p-11;
  const double floor = sums * (largest(expected) + 1e-3) + (storage == Storage::float16 ? 0x1p-24 : 0);
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities too
    if (std::abs(actual[i] - expected[i]) <= unit * std::abs(expected[i]) + floor) continue;
    return std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(actual[i]) + ", expected " +
           std::to_string(expected[i]) + "; largest " + std::to_string(largest(expected));
  }
  return "";
}

std::string difference(const CpuOutcome& outcome, const AttentionCase& c, const AttentionArrays& arrays,
                       Storage storage, double sums = 1e-5) {
  const reference::AttentionParams params = params_of(c, arrays);
  const reference::AttentionResult result = attention(params);
  const auto gradients = attention_backward(params, arrays.grad_out, arrays.grad_energy);
  for (const std::string& found :
       {difference("out", outcome.out, result.out, storage, sums),
        difference("energy", outcome.energy, result.energy, Storage::float32, sums),
        difference("gradient of q", outcome.q, gradients.q, storage, 3 * sums),
        difference("gradient of k", outcome.k, gradients.k, storage, 3 * sums),
        difference("gradient of v", outcome.v, gradients.v, storage, 3 * sums),
        difference("gradient of positions", outcome.positions, gradients.positions, Storage::float32, 3 * sums)}) {
    if (!found.empty()) return found;
  }
  return outcome.is_clean ? "" : "something was written outside its array";
}

// The same as the definition with one thread, and the same bits with more; empty: so it is.
std::string flaw_of(const AttentionCase& c, Storage storage, uint64_t seed, Layout layout = Layout::dense,
                    [[maybe_unused]] double sums = 1e-5) {
  AttentionArrays arrays = random_arrays(c, seed);
  CpuCase cpu_case(c, arrays, storage, layout);
  const CpuOutcome outcome = cpu_case.run(make_threads(1));
  for (const int64_t count : {2, 7}) {
    const CpuOutcome other = cpu_case.run(make_threads(count));
    if (other.bits != outcome.bits) return "other bits with " + std::to_string(count) + " threads";
    if (!other.is_clean) return "something was written outside its array with " + std::to_string(count) + " threads";
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "";  // sanitizers look at paths, not at numbers: the definition would take minutes
#else
  return difference(outcome, c, arrays, storage, sums);
#endif
}

AttentionCase case_of(const Forest& forest, const AttentionMode& mode) {
  AttentionCase c;
  c.forest = forest, c.mode = mode;
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

// Wide families: more than kNarrowFamily children, tiled and computed again.
std::vector<NamedForest> wide_forests() {
  const Array hundred = family_of(100, {kLeaf});
  return {
      {"just_wide", windows(Array{64, 65, 66}, {})},
      {"wide_200", windows(Array{200, 3}, {})},
      {"wide_of_families", from_nested(family_of(70, {kTriple}))},
      {"wide_mixed", from_nested(family_of(75, {kLeaf, kPair, kChain, kTriple, kLeaf}))},
      {"wide_under_narrow", from_nested(family_of(3, {hundred, kPair}))},
      {"wide_in_wide",
       from_nested(family_of(66, {hundred, kLeaf, kPair, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf,
                                  kLeaf,   kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf, kLeaf}))},
  };
}

// Trees with a crown: more than kGroveLeaves leaves.
std::vector<NamedForest> crowned_forests() {
  Array beside = {0};  // a tree with a crown between an empty one, bare leaves and small ones
  for (const Array& tree : {kLeaf, kPair, comb(80), kLeaf, family_of(4, {family_of(20, {kTriple}), kLeaf}), kChain}) {
    beside.insert(beside.end(), tree.begin(), tree.end());
  }
  return {
      {"binary", windows(Array{130}, Branching::parse("2*"))},
      {"sixteens", windows(Array{300, 64, 65, 16}, Branching::parse("16*"))},
      {"mixed_windows", windows(Array{200, 90}, Branching::parse("2,4,8,16"))},
      {"deep_comb", from_nested(comb(150))},
      {"leaves_in_the_crown", from_nested(family_of(7, {kLeaf, family_of(33, {kPair, kLeaf}), kLeaf, kTriple}))},
      {"beside_others", from_nested(beside)},
  };
}

void expect_no_flaw(const std::vector<NamedForest>& forests, uint64_t seed) {
  for (const auto& [name, forest] : forests) {
    for (const AttentionMode& mode : testing::cpu_modes()) {
      for (const Storage storage : kStorages) {
        AttentionCase c = case_of(forest, mode);
        c.name = name;
        c.position_dim = storage == Storage::float32 || mode.include_self ? 2 : 0;
        EXPECT_EQ(flaw_of(c, storage, seed), "") << c << " " << ::testing::PrintToString(storage);
      }
    }
  }
}

TEST_F(CpuAttention, AgreesOnTheListOfCases) {
  for (const AttentionCase& c : testing::attention_cases()) {
    if (!testing::applies_to_cpu(c)) continue;
    for (const Storage storage : kStorages) {
      EXPECT_EQ(flaw_of(c, storage, 1), "") << c << " " << ::testing::PrintToString(storage);
    }
  }
}

TEST_F(CpuCases, AgreeOnTreesWithACrown) {
  expect_no_flaw(crowned_forests(), 2);
}

TEST_F(CpuCases, AgreeOnWideFamilies) {
  expect_no_flaw(wide_forests(), 3);
}

// Tiles of two blocks, the last one short.
TEST_F(CpuCases, AgreeOnFamiliesOfLargeTiles) {
  for (const Forest& forest : {windows(Array{700}, {}), from_nested(family_of(530, {kLeaf, kPair, kLeaf}))}) {
    for (const AttentionMode& mode : testing::cpu_modes()) {
      if (mode.tie == Tie::none || mode.causal == Causal::prefix) continue;
      for (const Storage storage : {Storage::float32, Storage::bfloat16}) {
        AttentionCase c = case_of(forest, mode);
        c.position_dim = storage == Storage::float32 ? 2 : 0;
        EXPECT_EQ(flaw_of(c, storage, 11), "") << c << " " << ::testing::PrintToString(storage);
      }
    }
  }
}

TEST_F(CpuCases, AgreeThroughWindows) {
  std::vector<NamedForest> forests = testing::degenerate_forests();
  for (const auto& more : {testing::ordinary_forests(), crowned_forests(), wide_forests()}) {
    forests.insert(forests.end(), more.begin(), more.end());
  }
  for (const auto& [name, forest] : forests) {
    for (const AttentionMode& mode : testing::window_modes()) {
      AttentionCase c = case_of(forest, mode);
      c.name = name, c.position_dim = 0;
      const Storage storage = kStorages[mode.window % 3];
      EXPECT_EQ(flaw_of(c, storage, 12), "") << c << " " << ::testing::PrintToString(storage);
    }
  }
}

TEST_F(CpuCases, AgreeOnRandomTrees) {
  EXPECT_TRUE(rc::check([] {
    AttentionCase c =
        case_of((*testing::tree_batches(12, {6, 90, 150})).forest(), *rc::gen::elementOf(testing::cpu_modes()));
    c.heads = *rc::gen::element(1, 2, 4);
    c.key_heads = c.heads == 1 ? 1 : *rc::gen::element(1, 2);
    c.dim = *rc::gen::inRange(1, 20), c.value_dim = *rc::gen::inRange(1, 20);
    c.position_dim = *rc::gen::element(0, 1, 3, 17);
    const Storage storage = *rc::gen::element(Storage::float32, Storage::bfloat16, Storage::float16);
    const Layout layout = *rc::gen::element(Layout::dense, Layout::rows_apart, Layout::heads_first);
    RC_LOG() << c << " heads=" << c.heads << "/" << c.key_heads << " dim=" << c.dim << "/" << c.value_dim << " "
             << ::testing::PrintToString(storage) << "\n";
    RC_ASSERT(flaw_of(c, storage, *testing::seeds(), layout) == "");
  }));
}

// One forest with all kinds of families: narrow and wide ones, in groves and in the crown, chains, a bare leaf.
Forest all_kinds() {
  Array preorder = family_of(3, {family_of(66, {kLeaf}), family_of(3, {kPair, kChain, kTriple}), kLeaf});
  for (const Array& tree : {kLeaf, Array{0}, family_of(2, {kTriple, kPair})}) {
    preorder.insert(preorder.end(), tree.begin(), tree.end());
  }
  return from_nested(preorder);
}

struct Shape {
  int64_t dim, value_dim, heads, key_heads, position_dim;
};

void expect_shape(const Shape& shape, const Forest& forest, const std::vector<AttentionMode>& modes) {
  for (const AttentionMode& mode : modes) {
    for (const Storage storage : kStorages) {
      AttentionCase c = case_of(forest, mode);
      c.dim = shape.dim, c.value_dim = shape.value_dim, c.heads = shape.heads, c.key_heads = shape.key_heads;
      c.position_dim = shape.position_dim;
      // scores grow with the root of dim, those of leaves with themselves with position_dim, and with them the error of
      // their exponentials
      const double sums =
          1e-5 *
          std::max(1.0, (std::sqrt(static_cast<double>(shape.dim)) + static_cast<double>(shape.position_dim)) / 8);
      EXPECT_EQ(flaw_of(c, storage, 4, Layout::dense, sums), "")
          << c << " dim=" << c.dim << "/" << c.value_dim << " heads=" << c.heads << "/" << c.key_heads << " "
          << ::testing::PrintToString(storage);
    }
  }
}

TEST_F(CpuCases, AgreeForAnyDimensionsAndHeads) {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1, 1, 1},
                                               {1, 5, 3, 3, 0},
                                               {3, 1, 4, 2, 2},
                                               {8, 20, 2, 1, 8},
                                               {16, 16, 3, 1, 16},
                                               {20, 8, 6, 2, 0},
                                               {33, 64, 1, 1, 3}}) {
    expect_shape(shape, all_kinds(), testing::cpu_modes());
  }
  expect_shape({64, 3, 8, 8, 0}, from_nested(family_of(3, {family_of(5, {kLeaf, kPair})})), testing::cpu_modes());
}

// Families and channels that leave no lane idle: products read and write 16-bit rows as they are there.
TEST_F(CpuCases, AgreeWhereRowsFillVectors) {
  const Forest forest = windows(Array{80, 8, 16, 24}, Branching::parse("16*"));
  expect_shape({64, 32, 3, 3, 0}, forest, testing::cpu_modes());
  expect_shape({32, 64, 4, 2, 2}, forest, testing::cpu_modes());
}

// Families of as many leaves as lanes, and values as long as keys: squares.
TEST_F(CpuCases, AgreeOnSquares) {
  const Forest forest = windows(Array{80, 16}, Branching::parse("16*"));
  for (const Shape& shape : std::vector<Shape>{{64, 64, 3, 3, 0}, {16, 16, 1, 1, 0}, {40, 40, 4, 2, 0}}) {
    expect_shape(shape, forest, testing::cpu_modes());
  }
}

// Whatever is left of a family's rows and channels behind full tiles.
TEST_F(CpuCases, AgreeForTheRestsOfTiles) {
  const Forest forest = windows(Array{2, 3, 5, 9, 10, 11, 12, 13, 14, 15, 17, 20}, {});
  for (const Shape& shape :
       std::vector<Shape>{{32, 96, 2, 2, 0}, {96, 160, 1, 1, 0}, {8, 24, 2, 1, 0}, {40, 16, 1, 1, 0}}) {
    expect_shape(shape, forest, testing::cpu_modes());
  }
}

TEST_F(CpuCases, AgreeForTheLargestDimensions) {
  const std::vector<AttentionMode> modes = {{Tie::block, Causal::none, true, 1}, {Tie::none, Causal::block, true, 1}};
  expect_shape({64, 64, 2, 1, 64}, all_kinds(), modes);
  const Forest small = from_nested(family_of(3, {family_of(4, {kLeaf, kPair}), kLeaf}));
  expect_shape({512, 512, 2, 1, 0}, small, testing::cpu_modes());
  expect_shape({512, 7, 1, 1, 1024}, small, modes);
  expect_shape({5, 512, 1, 1, 1}, small, modes);
  expect_shape({512, 512, 1, 1, 0}, windows(Array{66}, {}), {modes[0]});
}

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

TEST_F(CpuAttention, GivesEnergiesWithoutValues) {
  for (const AttentionMode& mode : testing::cpu_modes()) {
    for (const Storage storage : kStorages) {
      AttentionCase c = case_of(all_kinds(), mode);
      c.value_dim = 0;
      EXPECT_EQ(flaw_of(c, storage, 5), "") << c << " " << ::testing::PrintToString(storage);
    }
  }
}

TEST_F(CpuAttention, TakesAnyStrides) {
  for (const AttentionMode& mode : testing::cpu_modes()) {
    for (const int64_t dim : {3, 16}) {
      for (const Storage storage : kStorages) {
        AttentionCase c = case_of(all_kinds(), mode);
        c.dim = c.value_dim = dim, c.heads = c.key_heads = 2;
        AttentionArrays arrays = random_arrays(c, 6);
        const CpuOutcome dense = CpuCase(c, arrays, storage).run(make_threads(1));
        for (const Layout layout : {Layout::rows_apart, Layout::heads_first}) {
          const CpuOutcome outcome = CpuCase(c, arrays, storage, layout).run(make_threads(2));
          EXPECT_EQ(outcome.bits, dense.bits) << c << " " << ::testing::PrintToString(storage);
          EXPECT_TRUE(outcome.is_clean) << c << " " << ::testing::PrintToString(storage);
        }
      }
    }
  }
}

// Every node of the chain above a leaf has a position of its own: towards siblings the topmost counts, towards itself
// the leaf's.
TEST_F(CpuAttention, KnowsTheTwoPositionsOfALeafBelowAChain) {
  AttentionCase c;
  c.forest = from_nested(family_of(5, {kChain, kPair, Array{1, 3, 1, kItem, kItem, 1, 1, kItem}}));
  c.num_positions = c.forest.num_nodes();
  for (const AttentionMode& mode : testing::cpu_modes()) {
    c.mode = mode;
    AttentionArrays arrays = random_arrays(c, 7);
    for (int64_t n = 0; n < c.num_positions; ++n) arrays.position_index[n] = n;
    const CpuOutcome outcome = CpuCase(c, arrays, Storage::float32).run(make_threads(1));
    EXPECT_EQ(difference(outcome, c, arrays, Storage::float32), "") << c;
    // those between the ends of a chain do not count at all
    const auto middle = static_cast<int64_t>(c.forest.parents()[c.forest.leaf_nodes()[0]]);
    const int64_t width = c.heads * c.position_dim;
    for (int64_t i = middle * width; i < (middle + 1) * width; ++i) EXPECT_EQ(outcome.positions[i], 0) << c;
  }
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
  for (const AttentionMode& mode : testing::cpu_modes()) {
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

// Scores of 1e4 and more: each exponential would overflow or vanish on its own.
TEST_F(CpuAttention, TakesScoresThatOverflowExponentials) {
  for (const AttentionMode& mode : testing::cpu_modes()) {
    for (const double size : {100.0, -100.0, 1e10}) {
      AttentionCase c = case_of(all_kinds(), mode);
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

// Small integers have exact scores, far apart or equal: weights are those of the largest alone.
TEST_F(CpuAttention, IsExactWhereScoresAreFarApart) {
  for (const AttentionMode& mode : testing::cpu_modes()) {
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

// Beside inputs, outputs and gradients: at most a quarter of their bytes, with families of 16 in float32.
TEST_F(CpuAttention, AllocatesAtMostAQuarterOfInputsAndResults) {
  for (const int64_t leaves : {512, 4096, 16384}) {
    for (const AttentionMode& mode : testing::cpu_modes()) {
      // what a thread works with does not shrink with the forest: seven of them need one that is worth it
      for (const int64_t threads : leaves > 512 ? Array{1, 2, 7} : Array{1, 2}) {
        const Walk walk = make_walk(windows(Array{leaves}, Branching::parse("16*")));
        cpu::AttentionParams params;
        params.walk = walk.view();
        params.heads = params.key_heads = 12, params.dim = params.value_dim = 64;
        params.tie = mode.tie, params.causal = mode.causal, params.include_self = mode.include_self;
        const int64_t inputs_and_results = 7 * leaves * 12 * 64;  // q, k, v, out and three gradients
        const int64_t forward = cpu::saved_size(params) + cpu::forward_workspace(params, threads);
        const int64_t backward = cpu::saved_size(params) + cpu::backward_workspace(params, threads);
        EXPECT_LE(4 * std::max(forward, backward), inputs_and_results)
            << leaves << " leaves, " << threads << " threads";
      }
    }
  }
}

TEST_F(CpuAttention, AgreesInEveryModeAndStorage) {
  expect_no_flaw({{"all_kinds", all_kinds()}, {"crown", windows(Array{150}, Branching::parse("8*"))}}, 11);
}

TEST_F(CpuAttention, AgreesForAnyDimension) {
  const Forest forest = from_nested(family_of(3, {family_of(5, {kLeaf, kPair}), kLeaf}));
  for (const int64_t dim : {1, 3, 4, 8, 15, 16, 20, 64}) {
    expect_shape({dim, dim, 2, 1, dim}, forest, testing::cpu_modes());
  }
}

}  // namespace
}  // namespace ramify
