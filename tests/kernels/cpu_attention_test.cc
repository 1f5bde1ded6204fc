// The fused CPU kernels against the definition: every case, storage, shape and instruction set, and the same bits
// whatever the number of threads.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "generators/random_forest.h"
#include "kernels/cpu_comparison.h"

namespace ramify::testing {
namespace {

class CpuCases : public CpuAttention {};  // those that take seconds

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
    for (const AttentionMode& mode : cpu_modes()) {
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
  for (const AttentionCase& c : attention_cases()) {
    if (!applies_to_cpu(c)) continue;
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
    for (const AttentionMode& mode : cpu_modes()) {
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
  std::vector<NamedForest> forests = degenerate_forests();
  for (const auto& more : {ordinary_forests(), crowned_forests(), wide_forests()}) {
    forests.insert(forests.end(), more.begin(), more.end());
  }
  for (const auto& [name, forest] : forests) {
    for (const AttentionMode& mode : window_modes()) {
      AttentionCase c = case_of(forest, mode);
      c.name = name, c.position_dim = 0;
      const Storage storage = kStorages[mode.window % 3];
      EXPECT_EQ(flaw_of(c, storage, 12), "") << c << " " << ::testing::PrintToString(storage);
    }
  }
}

TEST_F(CpuCases, AgreeOnRandomTrees) {
  EXPECT_TRUE(rc::check([] {
    AttentionCase c = case_of((*tree_batches(12, {6, 90, 150})).forest(), *rc::gen::elementOf(cpu_modes()));
    c.heads = *rc::gen::element(1, 2, 4);
    c.key_heads = c.heads == 1 ? 1 : *rc::gen::element(1, 2);
    c.dim = *rc::gen::inRange(1, 20), c.value_dim = *rc::gen::inRange(1, 20);
    c.position_dim = *rc::gen::element(0, 1, 3, 17);
    const Storage storage = *rc::gen::element(Storage::float32, Storage::bfloat16, Storage::float16);
    const Layout layout = *rc::gen::element(Layout::dense, Layout::rows_apart, Layout::heads_first);
    RC_LOG() << c << " heads=" << c.heads << "/" << c.key_heads << " dim=" << c.dim << "/" << c.value_dim << " "
             << ::testing::PrintToString(storage) << "\n";
    RC_ASSERT(flaw_of(c, storage, *seeds(), layout) == "");
  }));
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
                                               {24, 56, 2, 2, 24},
                                               {33, 64, 1, 1, 3}}) {
    expect_shape(shape, all_kinds(), cpu_modes());
  }
  expect_shape({64, 3, 8, 8, 0}, from_nested(family_of(3, {family_of(5, {kLeaf, kPair})})), cpu_modes());
}

// Families and channels that leave no lane idle: products read and write 16-bit rows as they are there.
TEST_F(CpuCases, AgreeWhereRowsFillVectors) {
  const Forest forest = windows(Array{80, 8, 16, 24}, Branching::parse("16*"));
  expect_shape({64, 32, 3, 3, 0}, forest, cpu_modes());
  expect_shape({32, 64, 4, 2, 2}, forest, cpu_modes());
}

// Families of as many leaves as lanes, and values as long as keys.
TEST_F(CpuCases, AgreeWhereLeavesFillVectors) {
  const Forest forest = windows(Array{80, 16}, Branching::parse("16*"));
  for (const Shape& shape :
       std::vector<Shape>{{64, 64, 3, 3, 0}, {16, 16, 1, 1, 0}, {40, 40, 4, 2, 0}, {24, 8, 2, 2, 0}}) {
    expect_shape(shape, forest, cpu_modes());
  }
}

// Whatever is left of a family's rows and channels behind full tiles.
TEST_F(CpuCases, AgreeForTheRestsOfTiles) {
  const Forest forest = windows(Array{2, 3, 5, 9, 10, 11, 12, 13, 14, 15, 17, 20}, {});
  for (const Shape& shape : std::vector<Shape>{
           {32, 96, 2, 2, 0}, {96, 160, 1, 1, 0}, {8, 24, 2, 1, 0}, {40, 16, 1, 1, 0}, {24, 72, 2, 2, 8}}) {
    expect_shape(shape, forest, cpu_modes());
  }
}

TEST_F(CpuCases, AgreeForTheLargestDimensions) {
  const std::vector<AttentionMode> modes = {{Tie::block, Causal::none, true, 1}, {Tie::none, Causal::block, true, 1}};
  expect_shape({64, 64, 2, 1, 64}, all_kinds(), modes);
  const Forest small = from_nested(family_of(3, {family_of(4, {kLeaf, kPair}), kLeaf}));
  expect_shape({512, 512, 2, 1, 0}, small, cpu_modes());
  expect_shape({512, 7, 1, 1, 1024}, small, modes);
  expect_shape({5, 512, 1, 1, 1}, small, modes);
  expect_shape({512, 512, 1, 1, 0}, windows(Array{66}, {}), {modes[0]});
}

TEST_F(CpuAttention, GivesEnergiesWithoutValues) {
  for (const AttentionMode& mode : cpu_modes()) {
    for (const Storage storage : kStorages) {
      AttentionCase c = case_of(all_kinds(), mode);
      c.value_dim = 0;
      EXPECT_EQ(flaw_of(c, storage, 5), "") << c << " " << ::testing::PrintToString(storage);
    }
  }
}

TEST_F(CpuAttention, TakesAnyStrides) {
  for (const AttentionMode& mode : cpu_modes()) {
    for (const int64_t dim : {3, 8, 16, 24}) {
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
  for (const AttentionMode& mode : cpu_modes()) {
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

// The rows of leaves [begin, end) of a case with other numbers.
Numbers part_of(const Numbers& rows, int64_t leaves, int64_t begin, int64_t end) {
  const int64_t width = leaves == 0 ? 0 : static_cast<int64_t>(rows.size()) / leaves;
  return Numbers(rows.begin() + begin * width, rows.begin() + end * width);
}

// A tree alone, and as every tree of a batch.
TEST_F(CpuAttention, GivesATreeTheSameBitsWhateverLiesBesideIt) {
  std::vector<AttentionMode> modes = cpu_modes();
  for (const AttentionMode& mode : window_modes()) modes.push_back(mode);
  for (const auto& [sizes, branching] : std::vector<std::pair<Array, const char*>>{
           {{3, 40, 1, 25, 16, 7}, "3*"}, {{5, 130, 90, 70}, "16*"}, {{9, 100, 300, 20}, "10,3*"}, {{70, 8, 66}, ""}}) {
    const Branching windows_of = *branching ? Branching::parse(branching) : Branching();
    for (const AttentionMode& mode : modes) {
      AttentionCase batch = case_of(windows(sizes, windows_of), mode);
      batch.dim = batch.value_dim = 16, batch.position_dim = 0;
      for (const Storage storage : {Storage::float32, Storage::bfloat16}) {
        AttentionArrays arrays = random_arrays(batch, 13);
        const CpuOutcome together = CpuCase(batch, arrays, storage).run(make_threads(2));
        const int64_t leaves = batch.forest.num_leaves();
        int64_t begin = 0, tree = 0;
        for (const int64_t size : sizes) {
          const int64_t end = begin + size;
          AttentionCase single = batch;
          single.forest = windows(Array{size}, windows_of);
          AttentionArrays own = arrays;
          for (Numbers* rows : {&own.q, &own.k, &own.v, &own.grad_out}) *rows = part_of(*rows, leaves, begin, end);
          own.grad_energy = part_of(own.grad_energy, batch.forest.num_trees(), tree, tree + 1);
          const CpuOutcome alone = CpuCase(single, own, storage).run(make_threads(1));
          EXPECT_EQ(part_of(together.out, leaves, begin, end), alone.out) << mode << " tree " << tree;
          EXPECT_EQ(part_of(together.q, leaves, begin, end), alone.q) << mode << " tree " << tree;
          EXPECT_EQ(part_of(together.k, leaves, begin, end), alone.k) << mode << " tree " << tree;
          EXPECT_EQ(part_of(together.v, leaves, begin, end), alone.v) << mode << " tree " << tree;
          begin = end, ++tree;
        }
      }
    }
  }
}

// Beside inputs, outputs and gradients: at most a quarter of their bytes, with families of 16 in float32.
TEST_F(CpuAttention, AllocatesAtMostAQuarterOfInputsAndResults) {
  for (const int64_t leaves : {512, 4096, 16384}) {
    for (const AttentionMode& mode : cpu_modes()) {
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
    expect_shape({dim, dim, 2, 1, dim}, forest, cpu_modes());
  }
}

}  // namespace
}  // namespace ramify::testing
