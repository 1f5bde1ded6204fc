// What attention must obey on any forest, in all implementations, forward and backward.
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "generators/random_forest.h"
#include "ops/torch_case.h"

namespace ramify {
namespace {

using testing::AttentionCase;
using testing::AttentionMode;
using testing::Outcome;
using testing::TorchCase;
using Array = std::vector<int64_t>;

class Laws : public ::testing::TestWithParam<Implementation> {
 protected:
  bool is_fused() const { return GetParam() == Implementation::fused; }

  // The definition goes one scalar at a time, so its trees are small.
  testing::TreeLimits limits() const {
    return GetParam() == Implementation::reference ? testing::TreeLimits{5, 8, 12} : testing::TreeLimits{};
  }
  Forest draw_forest() const { return (*testing::tree_batches(testing::kTreesPerBatch, limits())).forest(); }

  AttentionMode draw_mode() const {
    std::vector<AttentionMode> modes = testing::attention_modes({1});
    if (is_fused()) std::erase_if(modes, [](const AttentionMode& mode) { return !applies_to_fused(mode); });
    AttentionMode mode = *rc::gen::elementOf(modes);
    if (!is_fused()) mode.alpha = *rc::gen::element(1.0, 1.0, 1.5, 2.0);
    return mode;
  }
  // Sometimes through a window, where a mode can have one.
  AttentionMode draw_mode_or_window() const {
    AttentionMode mode = draw_mode();
    if (mode.tie == Tie::none && mode.alpha == 1) mode.window = *rc::gen::element<int64_t>(0, 1, 3, 20, 1000);
    return mode;
  }
  TorchCase draw_case(const Forest& forest, const AttentionMode& mode) const {
    AttentionCase c;
    c.forest = forest, c.mode = mode;
    c.position_dim = mode.window > 0 ? 0 : *rc::gen::element(0, 2);
    RC_LOG() << mode << " position_dim=" << c.position_dim << "\n";
    return testing::torch_case(c, *testing::seeds(), is_fused() ? at::kFloat : at::kDouble);
  }
  Outcome evaluate(const TorchCase& c) const { return testing::evaluate(c, GetParam()); }

  // The fused kernels compute in float32; fused_test.cc measures how well.
  bool near(const at::Tensor& a, const at::Tensor& b) const { return testing::near(a, b, is_fused() ? 2e-5 : 1e-9); }

  // `leaves` gives the number in b of each leaf of a.
  void require_same(const Outcome& a, const Outcome& b, const Array& leaves) const {
    RC_ASSERT(near(a.out, select(b.out, leaves)));
    RC_ASSERT(near(a.q, select(b.q, leaves)));
    RC_ASSERT(near(a.k, select(b.k, leaves)));
    RC_ASSERT(near(a.v, select(b.v, leaves)));
    RC_ASSERT(near(a.positions, b.positions));
  }

  static at::Tensor select(const at::Tensor& rows, const Array& index) {
    return rows.index_select(0, testing::tensor_of(index, {static_cast<int64_t>(index.size())}));
  }
};

INSTANTIATE_TEST_SUITE_P(Composed, Laws, ::testing::Values(Implementation::composed));
INSTANTIATE_TEST_SUITE_P(Fused, Laws, ::testing::Values(Implementation::fused));
INSTANTIATE_TEST_SUITE_P(Reference, Laws, ::testing::Values(Implementation::reference));

// Attention of one flat tree with torch's own: [n, H, d] and so on.
at::Tensor softmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& positions,
                             bool include_self) {
  const auto heads = [](const at::Tensor& rows) { return rows.transpose(0, 1).unsqueeze(0); };
  at::Tensor bias = at::zeros({1, q.size(1), q.size(0), q.size(0)}, q.options());
  if (positions.defined()) bias = heads(positions).matmul(heads(positions).transpose(-1, -2));
  if (!include_self)
    bias = bias.clone().masked_fill(at::zeros({q.size(0), q.size(0)}, at::kBool).fill_diagonal_(1), -INFINITY);
  const int64_t group = q.size(1) / k.size(1);
  return at::scaled_dot_product_attention(heads(q), heads(k.repeat_interleave(group, 1)),
                                          heads(v.repeat_interleave(group, 1)), bias, 0.0, false, testing::kScale)
      .squeeze(0)
      .transpose(0, 1);
}

TEST_P(Laws, FlatTreeIsSoftmaxAttention) {
  EXPECT_TRUE(rc::check([&] {
    const Array lengths = *rc::gen::container<Array>(testing::kTreesPerBatch, rc::gen::inRange<int64_t>(0, 40));
    const bool include_self = *rc::gen::arbitrary<bool>();
    TorchCase c = draw_case(windows(lengths, {}), {Tie::block, Causal::none, include_self, 1});
    c.mode.tie = *rc::gen::element(Tie::block, Tie::none);  // one family: there is nothing to tie
    c.grad_energy.zero_();
    const Outcome outcome = evaluate(c);

    c = c.to(at::kDouble);
    for (at::Tensor* input : {&c.q, &c.k, &c.v, &c.positions}) *input = testing::leaf_variable(*input);
    at::Tensor total = at::zeros({}, at::kDouble);
    at::Tensor expected = at::zeros_like(outcome.out, at::kDouble);
    const Array begin = c.forest.tree_leaf_begin();
    for (int64_t t = 0; t < c.forest.num_trees(); ++t) {
      const int64_t n = begin[t + 1] - begin[t];
      if (n == 0 || (n == 1 && !include_self)) continue;
      const auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin[t], n); };
      at::Tensor positions;
      if (c.positions.defined()) {
        Array nodes(c.forest.leaf_nodes().begin() + begin[t], c.forest.leaf_nodes().begin() + begin[t + 1]);
        const at::Tensor index = select(c.position_index, nodes);
        positions = c.positions.index_select(0, index.clamp_min(0)) * (index >= 0).view({n, 1, 1});
      }
      const at::Tensor out = softmax_attention(rows(c.q), rows(c.k), rows(c.v), positions, include_self);
      rows(expected).copy_(out.detach());
      total = total + (out * rows(c.grad_out)).sum();
    }
    RC_ASSERT(near(outcome.out, expected));
    if (!total.requires_grad()) return;
    total.backward();
    RC_ASSERT(near(outcome.q, c.q.grad()) && near(outcome.k, c.k.grad()) && near(outcome.v, c.v.grad()));
    if (c.positions.defined()) RC_ASSERT(near(outcome.positions, c.positions.grad()));
  }));
}

TEST_P(Laws, OutputIsTheGradientOfTheEnergy) {
  EXPECT_TRUE(rc::check([&] {
    AttentionMode mode = draw_mode_or_window();
    if (mode.tie == Tie::block && mode.causal == Causal::prefix) mode.causal = Causal::block;
    TorchCase c = draw_case(draw_forest(), mode);
    c.v = c.k;
    const at::Tensor out = attention(c.q, c.k, c.v, c.forest, c.options(GetParam()));
    c.q = testing::leaf_variable(c.q);
    const at::Tensor energies = energy(c.q, c.k, c.forest, c.options(GetParam()));
    energies.masked_fill(energies.isneginf(), 0).sum().backward();
    at::Tensor leaves_of_tree = at::zeros({c.forest.num_leaves(), 1, 1}, at::kDouble);
    const Array begin = c.forest.tree_leaf_begin();
    for (int64_t t = 0; t < c.forest.num_trees(); ++t) {
      const int64_t n = begin[t + 1] - begin[t];
      leaves_of_tree.narrow(0, begin[t], n).fill_(static_cast<double>(n));
    }
    RC_ASSERT(near(c.q.grad() * leaves_of_tree / testing::kScale, out));
  }));
}

TEST_P(Laws, PermutingSiblingsPermutesNothingElse) {
  EXPECT_TRUE(rc::check([&] {
    AttentionMode mode = draw_mode();
    mode.causal = Causal::none;
    // Without empty trees a forest is its parents, and a shuffle of those permutes siblings, and trees.
    const Forest forest = from_parents(draw_forest().parents()).forest;
    const TorchCase c = draw_case(forest, mode);
    Array number(forest.num_nodes()), shuffled(forest.num_nodes());
    std::iota(number.begin(), number.end(), 0);
    std::mt19937_64 random(*testing::seeds());
    std::shuffle(number.begin(), number.end(), random);
    const Array parents = forest.parents();
    for (int64_t n = 0; n < forest.num_nodes(); ++n) shuffled[number[n]] = parents[n] < 0 ? -1 : number[parents[n]];
    const ParentForest permuted = from_parents(shuffled);

    Array node_of(forest.num_nodes()), leaf_of(forest.num_leaves()), old_leaf(forest.num_leaves()),
        old_node(forest.num_nodes()), old_tree(forest.num_trees());
    for (int64_t n = 0; n < forest.num_nodes(); ++n) {
      node_of[n] = permuted.node_of_input[number[n]];
      old_node[node_of[n]] = n;
      if (n < forest.num_trees()) old_tree[node_of[n]] = n;
    }
    for (int64_t i = 0; i < forest.num_leaves(); ++i) {
      leaf_of[i] = permuted.forest.first_leaf()[node_of[forest.leaf_nodes()[i]]];
      old_leaf[leaf_of[i]] = i;
    }
    TorchCase other = c;
    other.forest = permuted.forest;
    for (at::Tensor* rows : {&other.q, &other.k, &other.v, &other.grad_out}) *rows = select(*rows, old_leaf);
    other.grad_energy = select(c.grad_energy, old_tree);
    if (c.positions.defined()) other.position_index = select(c.position_index, old_node);
    const Outcome a = evaluate(c), b = evaluate(other);
    require_same(a, b, leaf_of);
    const Array tree_of(node_of.begin(), node_of.begin() + forest.num_trees());
    RC_ASSERT(near(a.energy, select(b.energy, tree_of)));
  }));
}

TEST_P(Laws, AnUnrelatedTreeChangesNothing) {
  EXPECT_TRUE(rc::check([&] {
    const Forest forest = draw_forest(), unrelated = draw_forest();
    TorchCase c = draw_case(concatenate(std::vector<Forest>{unrelated, forest}), draw_mode_or_window());
    const Outcome together = evaluate(c);
    TorchCase alone = c;
    alone.forest = forest;
    const int64_t trees = forest.num_trees(), leaves = forest.num_leaves();
    const auto last = [](const at::Tensor& rows, int64_t count) { return rows.narrow(0, rows.size(0) - count, count); };
    for (at::Tensor* rows : {&alone.q, &alone.k, &alone.v, &alone.grad_out}) *rows = last(*rows, leaves);
    alone.grad_energy = last(c.grad_energy, trees);
    if (c.positions.defined()) {
      Array nodes;  // level by level the nodes of `forest` follow those of `unrelated`
      for (int64_t l = 0; l < c.forest.num_levels(); ++l) {
        const int64_t end = c.forest.level_begin()[l + 1];
        const int64_t count = l < forest.num_levels() ? forest.level_begin()[l + 1] - forest.level_begin()[l] : 0;
        for (int64_t n = end - count; n < end; ++n) nodes.push_back(n);
      }
      alone.position_index = select(c.position_index, nodes);
    }
    const Outcome outcome = evaluate(alone);
    RC_ASSERT(near(outcome.out, last(together.out, leaves)));
    RC_ASSERT(near(outcome.energy, last(together.energy, trees)));
    RC_ASSERT(near(outcome.q, last(together.q, leaves)));
    RC_ASSERT(near(outcome.k, last(together.k, leaves)));
    RC_ASSERT(near(outcome.v, last(together.v, leaves)));
  }));
}

TEST_P(Laws, AUnaryNodeAboveAnyNodeChangesNothing) {
  EXPECT_TRUE(rc::check([&] {
    const Forest forest = from_parents(draw_forest().parents()).forest;
    if (forest.num_nodes() == 0) return;
    const TorchCase c = draw_case(forest, draw_mode());
    Array parents = forest.parents();
    Array position(parents.size(), -1);
    if (c.positions.defined()) {
      const int64_t* index = c.position_index.const_data_ptr<int64_t>();
      position.assign(index, index + forest.num_nodes());
    }
    for (int insertion = 0; insertion < 30; ++insertion) {
      // The new node takes the number, so the place, of node x; x moves to the end.
      const auto x = static_cast<int64_t>(*testing::seeds() % parents.size());
      const auto moved = static_cast<int64_t>(parents.size());
      std::replace(parents.begin(), parents.end(), x, moved);
      parents.push_back(x);
      position.push_back(position[x]);
    }
    const ParentForest longer = from_parents(parents);
    TorchCase other = c;
    other.forest = longer.forest;
    if (c.positions.defined()) {
      Array index(position.size());
      for (size_t n = 0; n < position.size(); ++n) index[longer.node_of_input[n]] = position[n];
      other.position_index = testing::tensor_of(index, {static_cast<int64_t>(index.size())});
    }
    Array leaves(forest.num_leaves());
    std::iota(leaves.begin(), leaves.end(), 0);
    const Outcome a = evaluate(c), b = evaluate(other);
    require_same(a, b, leaves);
    RC_ASSERT(near(a.energy, b.energy));
  }));
}

TEST_P(Laws, RowsOfTheMatrixSumToOneAndAreConstantOnBlocks) {
  EXPECT_TRUE(rc::check([&] {
    testing::TreeLimits small = limits();
    small.max_leaves = std::min<int64_t>(small.max_leaves, 25);  // the matrix is that of all trees
    // the matrix has one column a leaf, and fused kernels take up to 512
    const int64_t trees = is_fused() ? 512 / small.max_leaves : testing::kTreesPerBatch;
    const Forest forest = (*testing::tree_batches(trees, small)).forest();
    const AttentionMode mode = draw_mode();
    TorchCase c = draw_case(forest, mode);
    const int64_t n = forest.num_leaves();
    if (n == 0) return;
    for (at::Tensor* input : {&c.q, &c.k}) *input = testing::leaf_variable(*input);
    const at::Tensor matrix = attention_matrix(c.q, c.k, forest, c.options(GetParam()));
    const at::Tensor sums = matrix.sum(-1);
    const Array begin = forest.tree_leaf_begin();
    at::Tensor expected = at::ones_like(sums).detach();
    for (int64_t t = 0; t < forest.num_trees(); ++t) {
      if (begin[t + 1] - begin[t] == 1 && !mode.include_self) expected.select(0, begin[t]).zero_();
    }
    RC_ASSERT(near(sums.detach(), expected));
    // Sums that are constant have no gradient.
    (sums * c.grad_out.select(-1, 0)).sum().backward();
    RC_ASSERT(near(c.q.grad(), at::zeros_like(c.q.grad())) && near(c.k.grad(), at::zeros_like(c.k.grad())));

    const at::Tensor theta = matrix.detach();
    const Array counts = forest.leaf_counts();
    const bool tied_rows = mode.tie == Tie::block && mode.causal != Causal::prefix;
    const auto constant = [&](const at::Tensor& block, int64_t dim) {
      return (block.amax(dim) - block.amin(dim)).max().item<double>() < (is_fused() ? 1e-6 : 1e-12);
    };
    for (int64_t parent = 0; parent < forest.num_nodes(); ++parent) {
      for (int64_t a = forest.first_child()[parent]; a < forest.first_child()[parent + 1]; ++a) {
        const int64_t b = a > forest.first_child()[parent] ? a - 1 : forest.first_child()[parent + 1] - 1;
        if (a == b) continue;
        const at::Tensor block =
            theta.narrow(0, forest.first_leaf()[a], counts[a]).narrow(2, forest.first_leaf()[b], counts[b]);
        RC_ASSERT(constant(block, 2));
        if (tied_rows) RC_ASSERT(constant(block, 0));
      }
    }
  }));
}

TEST_P(Laws, LaterTokensNeverChangeEarlierOutputs) {
  EXPECT_TRUE(rc::check([&] {
    AttentionMode mode = draw_mode_or_window();
    mode.include_self = true;
    if (mode.tie == Tie::block) mode.causal = Causal::prefix;
    if (mode.causal == Causal::none) mode.causal = Causal::block;
    TorchCase c = draw_case(draw_forest(), mode);
    const int64_t n = c.forest.num_leaves();
    if (n < 2) return;
    const int64_t cut = 1 + static_cast<int64_t>(*testing::seeds() % static_cast<uint64_t>(n - 1));
    const at::Tensor before = attention(c.q, c.k, c.v, c.forest, c.options(GetParam()));
    TorchCase changed = c;
    for (at::Tensor* input : {&changed.q, &changed.k, &changed.v}) {
      *input = input->clone();
      input->narrow(0, cut, n - cut).mul_(-1.7).add_(0.3);
      *input = testing::leaf_variable(*input);
    }
    const at::Tensor after = attention(changed.q, changed.k, changed.v, c.forest, changed.options(GetParam()));
    RC_ASSERT(before.narrow(0, 0, cut).equal(after.detach().narrow(0, 0, cut)));
    (after * c.grad_out).narrow(0, 0, cut).sum().backward();
    for (const at::Tensor& input : {changed.q, changed.k, changed.v}) {
      RC_ASSERT((input.grad().narrow(0, cut, n - cut) == 0).all().item<bool>());
    }
  }));
}

TEST_P(Laws, NaNNeverReachesAnotherTree) {
  EXPECT_TRUE(rc::check([&] {
    TorchCase c = draw_case(draw_forest(), draw_mode_or_window());
    const int64_t n = c.forest.num_leaves();
    if (n == 0) return;
    const Outcome clean = evaluate(c);
    const auto bad = static_cast<int64_t>(*testing::seeds() % static_cast<uint64_t>(n));
    for (at::Tensor* input : {&c.q, &c.k, &c.v}) {
      *input = input->clone();
      input->select(0, bad).fill_(std::numeric_limits<double>::quiet_NaN());
    }
    const Outcome outcome = evaluate(c);
    const Array begin = c.forest.tree_leaf_begin();
    for (int64_t t = 0; t < c.forest.num_trees(); ++t) {
      if (begin[t] <= bad && bad < begin[t + 1]) continue;
      const auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin[t], begin[t + 1] - begin[t]); };
      RC_ASSERT(near(rows(outcome.out), rows(clean.out)));
      RC_ASSERT(near(outcome.energy.select(0, t), clean.energy.select(0, t)));
      RC_ASSERT(near(rows(outcome.q), rows(clean.q)));
      RC_ASSERT(near(rows(outcome.k), rows(clean.k)));
      RC_ASSERT(near(rows(outcome.v), rows(clean.v)));
    }
  }));
}

TEST(Implementations, AgreeInEveryMode) {
  EXPECT_TRUE(rc::check([&] {
    AttentionCase c;
    c.forest = (*testing::tree_batches(testing::kTreesPerBatch, {6, 12, 14})).forest();
    c.heads = *rc::gen::element(1, 2, 4);
    c.key_heads = c.heads == 1 ? 1 : *rc::gen::element(1, 2);
    c.dim = *rc::gen::inRange(1, 5), c.value_dim = *rc::gen::inRange(1, 4);
    c.position_dim = *rc::gen::inRange(0, 3);
    const double alpha = *rc::gen::element(1.0, 1.25, 1.5, 2.0);
    for (const AttentionMode& mode : testing::attention_modes({alpha})) {
      const uint64_t seed = *testing::seeds();
      c.mode = mode;
      c.alpha_levels.clear();
      if (mode.tie == Tie::block && alpha > 1.3 && c.forest.depth() > 1) {  // and sometimes one value a level
        std::mt19937_64 random(seed);
        for (int64_t l = 0; l < c.forest.depth(); ++l) {
          const bool softmax = std::bernoulli_distribution(0.3)(random);
          c.alpha_levels.push_back(softmax ? 1 : std::uniform_real_distribution<>(1.1, 2)(random));
        }
      }
      RC_LOG() << mode << "\n";
      const TorchCase problem = testing::torch_case(c, seed);
      const Outcome a = testing::evaluate(problem, Implementation::composed);
      const Outcome b = testing::evaluate(problem, Implementation::reference);
      RC_ASSERT(testing::near(a.out, b.out) && testing::near(a.energy, b.energy));
      RC_ASSERT(testing::near(a.q, b.q, 1e-8) && testing::near(a.k, b.k, 1e-8) && testing::near(a.v, b.v, 1e-8));
      RC_ASSERT(testing::near(a.positions, b.positions, 1e-8) && testing::near(a.alpha, b.alpha, 1e-7));
    }
  }));
}

}  // namespace
}  // namespace ramify
