// The definition: degenerate trees, gradients against finite differences, the laws that define its modes, depth.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "generators/random_forest.h"
#include "hierarchy/contraction.h"
#include "kernels/attention_cases.h"

namespace ramify {
namespace {

using reference::AttentionGradients;
using reference::AttentionParams;
using reference::AttentionResult;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::AttentionMode;
using Numbers = std::vector<double>;

// Families and trees that the definition, one scalar at a time, goes through quickly.
constexpr testing::TreeLimits kSmall = {5, 8, 14};

bool all_zero(const Numbers& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return value == 0; });
}

double largest_difference(const Numbers& a, const Numbers& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i]) largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

AttentionGradients backward(const AttentionCase& c, const AttentionArrays& arrays) {
  return reference::attention_backward(params_of(c, arrays), arrays.grad_out, arrays.grad_energy);
}

AttentionMode draw_mode() {
  AttentionMode mode = *rc::gen::elementOf(testing::attention_modes({1}));
  mode.alpha = *rc::gen::element(1.0, 1.25, 1.5, 2.0);
  return mode;
}

// Case `forest` in some mode, with or without positions, and its numbers.
struct DrawnCase {
  AttentionCase attention;
  AttentionArrays arrays;
};

DrawnCase draw_case(const Forest& forest, const AttentionMode& mode) {
  DrawnCase drawn;
  drawn.attention.forest = forest;
  drawn.attention.mode = mode;
  drawn.attention.position_dim = *rc::gen::element(0, 2);
  drawn.arrays = random_arrays(drawn.attention, *testing::seeds());
  return drawn;
}

TEST(Degenerate, NothingIsEverNaN) {
  for (const AttentionCase& c : testing::attention_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionArrays arrays = random_arrays(c, 1);
    const AttentionResult result = attention(params_of(c, arrays));
    const AttentionGradients gradients = backward(c, arrays);
    for (const Numbers* values :
         {&result.out, &gradients.q, &gradients.k, &gradients.v, &gradients.positions, &gradients.alpha}) {
      EXPECT_TRUE(std::all_of(values->begin(), values->end(), [](double value) { return std::isfinite(value); }));
    }
    EXPECT_TRUE(std::all_of(result.energy.begin(), result.energy.end(), [](double value) { return value < INFINITY; }));
  }
}

TEST(Degenerate, EmptyTreesContributeNothing) {
  for (const AttentionCase& c : cases_of(testing::degenerate_forests())) {
    const AttentionArrays arrays = random_arrays(c, 2);
    const AttentionResult result = attention(params_of(c, arrays));
    EXPECT_EQ(static_cast<int64_t>(result.out.size()), c.forest.num_leaves() * c.heads * c.value_dim);
    ASSERT_EQ(static_cast<int64_t>(result.energy.size()), c.forest.num_trees() * c.heads);
    for (int64_t t = 0; t < c.forest.num_trees(); ++t) {
      const bool empty = c.forest.tree_begin()[t] == c.forest.tree_begin()[t + 1];
      EXPECT_TRUE(!empty || result.energy[t * c.heads] == -INFINITY) << c;
    }
  }
}

TEST(Degenerate, ChainToOneLeafGivesZeroWithoutSelfAndItsValueWithSelf) {
  for (const AttentionCase& c : cases_of(testing::degenerate_forests())) {
    if (c.name != "chain_to_one_leaf" && c.name != "bare_leaf") continue;
    SCOPED_TRACE(::testing::PrintToString(c));
    AttentionArrays arrays = random_arrays(c, 3);
    std::fill(arrays.grad_energy.begin(), arrays.grad_energy.end(), 0.0);
    const AttentionResult result = attention(params_of(c, arrays));
    const AttentionGradients gradients = backward(c, arrays);
    EXPECT_TRUE(all_zero(gradients.q) && all_zero(gradients.k) && all_zero(gradients.positions));
    for (int64_t h = 0; h < c.heads; ++h) {
      EXPECT_EQ(std::isinf(result.energy[h]), !c.mode.include_self);
      for (int64_t d = 0; d < c.value_dim; ++d) {
        EXPECT_DOUBLE_EQ(result.out[h * c.value_dim + d], c.mode.include_self ? arrays.v[d] : 0);
      }
    }
    for (int64_t d = 0; d < c.value_dim; ++d) {
      const double through = arrays.grad_out[d] + arrays.grad_out[c.value_dim + d];  // both heads share the value
      EXPECT_DOUBLE_EQ(gradients.v[d], c.mode.include_self ? through : 0);
    }
  }
}

TEST(Degenerate, LeafAloneInItsFamilySendsAllMassToItsParentsSiblings) {
  // [[0], [1, 2], 3]: leaf 0 stands for its parent and sees the pair and leaf 3.
  AttentionCase c;
  c.forest = from_nested(std::vector<int64_t>{3, 1, kItem, 2, kItem, kItem, kItem});
  c.heads = c.dim = c.value_dim = 1, c.position_dim = 0;
  AttentionArrays arrays = random_arrays(c, 4);
  AttentionParams params = params_of(c, arrays);
  const double q = arrays.q[0], pair_key = (arrays.k[1] + arrays.k[2]) / 2;
  const double pair = 2 * std::exp(params.scale * q * pair_key), single = std::exp(params.scale * q * arrays.k[3]);
  const double expected = (pair * (arrays.v[1] + arrays.v[2]) / 2 + single * arrays.v[3]) / (pair + single);
  EXPECT_NEAR(attention(params).out[0], expected, 1e-14);
  std::fill(arrays.grad_out.begin() + 1, arrays.grad_out.end(), 0.0);
  std::fill(arrays.grad_energy.begin(), arrays.grad_energy.end(), 0.0);
  EXPECT_EQ(backward(c, arrays).v[0], 0);
}

TEST(Degenerate, NaNStaysInItsTree) {
  for (const AttentionMode& mode : testing::attention_modes()) {
    AttentionCase c;
    c.mode = mode;
    c.forest = from_nested(std::vector<int64_t>{2, kItem, kItem, 3, kItem, 2, kItem, kItem, kItem, kItem});
    AttentionArrays arrays = random_arrays(c, 5);
    const Numbers clean = attention(params_of(c, arrays)).out;
    constexpr int64_t kBad = 3;  // a leaf of the second tree
    arrays.q[kBad * c.heads * c.dim] = arrays.k[kBad * c.dim] = std::numeric_limits<double>::quiet_NaN();
    arrays.v[kBad * c.value_dim] = std::numeric_limits<double>::quiet_NaN();
    const Numbers out = attention(params_of(c, arrays)).out;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto leaf = static_cast<int64_t>(i) / (c.heads * c.value_dim);
      const bool other_tree = leaf < 2 || leaf > 5;
      EXPECT_TRUE(!other_tree || out[i] == clean[i]) << mode << " leaf " << leaf;
    }
    EXPECT_TRUE(std::isnan(out[kBad * c.heads * c.value_dim])) << mode;
  }
}

// sum(out · grad_out) + sum(energy · grad_energy), leaving out trees that have nothing to attend to.
double functional(const AttentionCase& c, const AttentionArrays& arrays) {
  const AttentionResult result = attention(params_of(c, arrays));
  double sum = 0;
  for (size_t i = 0; i < result.out.size(); ++i) sum += result.out[i] * arrays.grad_out[i];
  for (size_t i = 0; i < result.energy.size(); ++i) {
    if (std::isfinite(result.energy[i])) sum += result.energy[i] * arrays.grad_energy[i];
  }
  return sum;
}

// How far the gradient of one input array is from a central difference along a random direction, as a part of its
// magnitude.
double gradient_error(const AttentionCase& c, const AttentionArrays& arrays, Numbers AttentionArrays::*input,
                      const Numbers& gradient, std::mt19937_64& random) {
  constexpr double kStep = 1e-5;
  AttentionArrays up = arrays, down = arrays;
  double expected = 0, magnitude = 1;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double direction = std::normal_distribution<>()(random);
    (up.*input)[i] += kStep * direction;
    (down.*input)[i] -= kStep * direction;
    expected += gradient[i] * direction;
    magnitude += std::abs(gradient[i] * direction);
  }
  const double difference = (functional(c, up) - functional(c, down)) / (2 * kStep);
  return std::abs(difference - expected) / magnitude;
}

RC_GTEST_PROP(Gradients, AgreeWithCentralDifferences, ()) {
  const Forest forest = (*testing::tree_batches(testing::kTreesPerBatch, {4, 6, 8})).forest();
  for (const AttentionMode& mode : testing::attention_modes({*rc::gen::element(1.0, 1.25, 1.5, 2.0)})) {
    DrawnCase drawn = draw_case(forest, mode);
    AttentionCase& c = drawn.attention;
    std::mt19937_64 random(*testing::seeds());
    if (mode.tie == Tie::block && mode.alpha > 1 && forest.depth() > 1) {
      c.alpha_levels.resize(forest.depth());
      for (double& alpha : c.alpha_levels) alpha = std::uniform_real_distribution<>(1.1, 1.9)(random);
      drawn.arrays.alpha = c.alpha_levels;
    }
    const AttentionGradients gradients = backward(c, drawn.arrays);
    // Entmax has kinks where an entry drops out, which a difference may straddle.
    const double tolerance = mode.alpha == 1 ? 1e-7 : 1e-4;
    RC_ASSERT(gradient_error(c, drawn.arrays, &AttentionArrays::q, gradients.q, random) < tolerance);
    RC_ASSERT(gradient_error(c, drawn.arrays, &AttentionArrays::k, gradients.k, random) < tolerance);
    RC_ASSERT(gradient_error(c, drawn.arrays, &AttentionArrays::v, gradients.v, random) < tolerance);
    RC_ASSERT(gradient_error(c, drawn.arrays, &AttentionArrays::positions, gradients.positions, random) < tolerance);
    if (mode.alpha == 1) continue;
    RC_ASSERT(gradient_error(c, drawn.arrays, &AttentionArrays::alpha, gradients.alpha, random) < tolerance);
  }
}

// The leaves 0 to `last` of a tree and what stands above them, with the numbers that belong to them.
DrawnCase cut_after(const AttentionCase& c, const AttentionArrays& arrays, int64_t last) {
  std::vector<int64_t> parents, kept, number(c.forest.num_nodes());
  const std::vector<int64_t> all_parents = c.forest.parents();
  for (int64_t n = 0; n < c.forest.num_nodes(); ++n) {
    if (c.forest.first_leaf()[n] > last) continue;
    number[n] = static_cast<int64_t>(kept.size());
    kept.push_back(n);
    parents.push_back(all_parents[n] < 0 ? -1 : number[all_parents[n]]);
  }
  DrawnCase cut = {c, arrays};
  cut.attention.forest = from_parents(parents).forest;  // its order is that of `kept`
  cut.arrays.q.resize((last + 1) * c.heads * c.dim);
  cut.arrays.k.resize((last + 1) * c.key_heads * c.dim);
  cut.arrays.v.resize((last + 1) * c.key_heads * c.value_dim);
  if (c.position_dim == 0) return cut;
  cut.arrays.position_index.clear();
  for (const int64_t node : kept) cut.arrays.position_index.push_back(arrays.position_index[node]);
  return cut;
}

RC_GTEST_PROP(Prefix, RowsAreTheLastRowsOfBlockCausalCutTrees, ()) {
  const testing::TreeBatch batch = *testing::tree_batches(testing::kTreesPerBatch, kSmall);
  const double alpha = *rc::gen::element(1.0, 1.5, 2.0);
  for (const auto& tree : batch.trees) {
    DrawnCase drawn = draw_case(from_nested(tree), {Tie::block, Causal::prefix, true, alpha});
    AttentionCase& c = drawn.attention;
    const Numbers out = attention(params_of(c, drawn.arrays)).out;
    const int64_t row = c.heads * c.value_dim;
    for (int64_t i = 0; i < c.forest.num_leaves(); ++i) {
      DrawnCase cut = cut_after(c, drawn.arrays, i);
      cut.attention.mode.causal = Causal::block;
      const Numbers cut_out = attention(params_of(cut.attention, cut.arrays)).out;
      RC_ASSERT(largest_difference({out.begin() + i * row, out.begin() + (i + 1) * row},
                                   {cut_out.begin() + i * row, cut_out.begin() + (i + 1) * row}) < 1e-11);
    }
  }
}

// Every node of a chain of only children gets the position of the topmost, as the contracted forest has it.
void share_positions_along_chains(const Forest& forest, std::vector<int64_t>& position_index) {
  const std::vector<int64_t> parents = forest.parents();
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    if (parents[n] >= 0 && forest.num_children(parents[n]) == 1) position_index[n] = position_index[parents[n]];
  }
}

RC_GTEST_PROP(Unary, ChainsOfOnlyChildrenChangeNothing, ()) {
  const Forest forest = (*testing::tree_batches(testing::kTreesPerBatch, kSmall)).forest();
  DrawnCase drawn = draw_case(forest, draw_mode());
  if (drawn.attention.position_dim > 0) share_positions_along_chains(forest, drawn.arrays.position_index);
  DrawnCase without = drawn;
  const Contraction contraction = contract(forest);
  without.attention.forest = contraction.forest;
  if (drawn.attention.position_dim > 0) {
    without.arrays.position_index.clear();
    for (const int64_t top : contraction.top) {
      without.arrays.position_index.push_back(drawn.arrays.position_index[top]);
    }
  }
  const AttentionResult a = attention(params_of(drawn.attention, drawn.arrays));
  const AttentionResult b = attention(params_of(without.attention, without.arrays));
  RC_ASSERT(largest_difference(a.out, b.out) < 1e-11);
  RC_ASSERT(largest_difference(a.energy, b.energy) < 1e-11);
  const AttentionGradients ga = backward(drawn.attention, drawn.arrays),
                           gb = backward(without.attention, without.arrays);
  RC_ASSERT(largest_difference(ga.q, gb.q) < 1e-10);
  RC_ASSERT(largest_difference(ga.k, gb.k) < 1e-10);
  RC_ASSERT(largest_difference(ga.v, gb.v) < 1e-10);
  RC_ASSERT(largest_difference(ga.positions, gb.positions) < 1e-9);
}

// One head, one tree: Theta from v = identity, [n, n].
Numbers matrix(AttentionCase c, AttentionArrays arrays) {
  const int64_t n = c.forest.num_leaves();
  c.value_dim = n;
  arrays.v.assign(n * n, 0);
  for (int64_t i = 0; i < n; ++i) arrays.v[i * n + i] = 1;
  return attention(params_of(c, arrays)).out;
}

// Scores of the flat rows that the tree approximates: positions are those of the ancestors that are siblings.
// -inf where a leaf may not look.
Numbers flat_scores(const AttentionCase& c, const AttentionArrays& arrays) {
  const int64_t n = c.forest.num_leaves();
  const std::vector<int64_t> parents = c.forest.parents();
  const auto position_product = [&](int64_t a, int64_t b) {
    double sum = 0;
    if (c.position_dim == 0) return sum;
    const int64_t pa = arrays.position_index[a], pb = arrays.position_index[b];
    for (int64_t d = 0; pa >= 0 && pb >= 0 && d < c.position_dim; ++d) {
      sum += arrays.positions[pa * c.position_dim + d] * arrays.positions[pb * c.position_dim + d];
    }
    return sum;
  };
  std::vector<int64_t> depth(c.forest.num_nodes(), 0);
  for (int64_t m = 0; m < c.forest.num_nodes(); ++m) depth[m] = parents[m] < 0 ? 0 : depth[parents[m]] + 1;
  Numbers scores(n * n, -INFINITY);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      if (i == j && !c.mode.include_self) continue;
      if (j > i && c.mode.causal == Causal::block) continue;
      int64_t a = c.forest.leaf_nodes()[i], b = c.forest.leaf_nodes()[j];
      while (depth[a] > depth[b]) a = parents[a];
      while (depth[b] > depth[a]) b = parents[b];
      while (parents[a] != parents[b]) a = parents[a], b = parents[b];
      double product = 0;
      for (int64_t d = 0; d < c.dim; ++d) product += arrays.q[i * c.dim + d] * arrays.k[j * c.dim + d];
      scores[i * n + j] = testing::kScale * product + position_product(a, b);
    }
  }
  return scores;
}

// sum_i KL(theta_i || softmax(s_i)) but for a constant.
double divergence(const Numbers& theta, const Numbers& scores) {
  double sum = 0;
  for (size_t i = 0; i < theta.size(); ++i) {
    if (theta[i] > 0) sum += theta[i] * (std::log(theta[i]) - scores[i]);
  }
  return sum;
}

RC_GTEST_PROP(Optimality, NoMatrixWithTheSameBlocksIsCloserToSoftmax, ()) {
  const testing::TreeBatch batch = *testing::tree_batches(testing::kTreesPerBatch, kSmall);
  for (const auto& tree : batch.trees) {
    AttentionCase c;
    c.forest = from_nested(tree);
    const int64_t n = c.forest.num_leaves();
    if (n < 2) continue;
    c.heads = 1;
    c.mode = *rc::gen::element(AttentionMode{Tie::block, Causal::none, false, 1},
                               AttentionMode{Tie::block, Causal::none, true, 1},
                               AttentionMode{Tie::block, Causal::block, true, 1});
    const AttentionArrays arrays = random_arrays(c, *testing::seeds());
    const Numbers scores = flat_scores(c, arrays), best = matrix(c, arrays);
    const double least = divergence(best, scores);
    // Other inputs give other matrices with these blocks. The problem is convex, so no step towards one may help.
    for (int attempt = 0; attempt < 4; ++attempt) {
      const Numbers other = matrix(c, random_arrays(c, *testing::seeds()));
      for (const double step : {1e-4, 1e-2, 0.3, 1.0}) {
        Numbers mixed(n * n);
        for (int64_t e = 0; e < n * n; ++e) mixed[e] = (1 - step) * best[e] + step * other[e];
        RC_ASSERT(divergence(mixed, scores) >= least - 1e-10);
      }
    }
  }
}

TEST(Sparse, WeightsAreExactlyZeroAtAlphaTwo) {
  AttentionCase c;
  c.forest = windows(std::vector<int64_t>{4}, {});
  c.mode.alpha = 2;
  c.heads = c.dim = 1, c.position_dim = 0;
  AttentionArrays arrays = random_arrays(c, 6);
  arrays.q = {1, 1, 1, 1}, arrays.k = {0, 1, 9, 9.5};  // times kScale: leaf 0 sees 0.7, 6.3 and 6.65
  const Numbers theta = matrix(c, arrays);
  EXPECT_EQ(theta[0], 0);
  EXPECT_EQ(theta[1], 0);
  EXPECT_NEAR(theta[2], 0.5 - 0.35 / 2, 1e-12);
  EXPECT_NEAR(theta[3], 0.5 + 0.35 / 2, 1e-12);
  std::fill(arrays.grad_out.begin() + c.value_dim, arrays.grad_out.end(), 0.0);
  std::fill(arrays.grad_energy.begin(), arrays.grad_energy.end(), 0.0);
  const AttentionGradients gradients = backward(c, arrays);
  EXPECT_EQ(gradients.k[1], 0);
  EXPECT_EQ(gradients.v[2], 0);
  EXPECT_NE(gradients.k[2], 0);
}

TEST(Sparse, AlphaOneIsSoftmaxAndItsNeighboursAreClose) {
  for (AttentionCase c : cases_of(testing::ordinary_forests())) {
    if (c.mode.alpha != 1) continue;
    const AttentionArrays arrays = random_arrays(c, 7);
    AttentionArrays near = arrays;
    near.alpha = {1.0011};
    EXPECT_LT(largest_difference(attention(params_of(c, arrays)).out, attention(params_of(c, near)).out), 0.01);
  }
}

TEST(Depth, ChainOfAMillionNodes) {
  std::vector<int64_t> preorder(1'000'000, 1);
  preorder.back() = kItem;
  AttentionCase c;
  c.forest = from_nested(preorder);
  c.heads = c.dim = c.value_dim = 1, c.position_dim = 0;
  const AttentionArrays arrays = random_arrays(c, 8);
  EXPECT_EQ(attention(params_of(c, arrays)).out, Numbers{0});
  c.mode.include_self = true;
  EXPECT_DOUBLE_EQ(attention(params_of(c, arrays)).out[0], arrays.v[0]);
  c.mode.causal = Causal::prefix;
  EXPECT_DOUBLE_EQ(attention(params_of(c, arrays)).out[0], arrays.v[0]);
}

// Outputs on a comb, whose level d holds leaf d and all later ones: two loops instead of a tree.
Numbers comb_outputs(const Numbers& q, const Numbers& k, const Numbers& v, double scale) {
  const auto n = static_cast<int64_t>(q.size());
  Numbers rest_q(n + 1, 0), rest_k(n + 1, 0), rest_v(n + 1, 0);  // sums over leaves d, d + 1, ...
  for (int64_t d = n - 1; d >= 0; --d) {
    rest_q[d] = rest_q[d + 1] + q[d], rest_k[d] = rest_k[d + 1] + k[d], rest_v[d] = rest_v[d + 1] + v[d];
  }
  const auto log_add = [](double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); };
  Numbers stay(n, 1), out(n);
  double e = scale * q[n - 1] * k[n - 1];  // of the part from leaf d + 1 on, with the self term
  for (int64_t d = n - 2; d >= 0; --d) {
    const auto later = static_cast<double>(n - 1 - d);
    const double leaf_sees = scale * q[d] * rest_k[d + 1] / later + std::log(later), self = scale * q[d] * k[d];
    const double rest_sees = scale * rest_q[d + 1] / later * k[d];
    const double leaf_weight = std::exp(leaf_sees - log_add(leaf_sees, self));
    out[d] = leaf_weight * rest_v[d + 1] / later + (1 - leaf_weight) * v[d];
    stay[d] = std::exp(e - log_add(e, rest_sees));
    e = (log_add(leaf_sees, self) + later * log_add(e, rest_sees)) / (later + 1);
  }
  out[n - 1] = v[n - 1];
  double mass = 1, gathered = 0;
  for (int64_t d = 0; d < n; ++d) {
    out[d] = gathered + mass * out[d];
    gathered += mass * (1 - stay[d]) * v[d];
    mass *= stay[d];
  }
  return out;
}

TEST(Depth, CombOfDepth20000) {
  std::vector<int64_t> preorder;
  for (int64_t d = 0; d < 20'000; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  AttentionCase c;
  c.forest = from_nested(preorder);
  c.mode.include_self = true;
  c.heads = c.dim = c.value_dim = 1, c.position_dim = 0;
  AttentionArrays arrays = random_arrays(c, 9);
  const AttentionParams params = params_of(c, arrays);
  EXPECT_LT(largest_difference(attention(params).out, comb_outputs(arrays.q, arrays.k, arrays.v, params.scale)), 1e-9);

  std::mt19937_64 random(9);
  const AttentionGradients gradients = backward(c, arrays);
  EXPECT_LT(gradient_error(c, arrays, &AttentionArrays::q, gradients.q, random), 1e-6);
  EXPECT_LT(gradient_error(c, arrays, &AttentionArrays::v, gradients.v, random), 1e-6);
}

}  // namespace
}  // namespace ramify
