// The public calls: the list of cases in every dtype, what can be read off attention, deep trees, wrong calls.
#include "ramify/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

#include "ops/torch_case.h"

namespace ramify {
namespace {

using testing::AttentionCase;
using testing::near;
using testing::Outcome;
using testing::TorchCase;
using Array = std::vector<int64_t>;

constexpr Implementation kImplementations[] = {Implementation::composed, Implementation::reference,
                                               Implementation::fused};

// Whether an implementation has a mode in some dtype.
bool applies(Implementation implementation, const testing::AttentionMode& mode, at::ScalarType dtype = at::kFloat) {
  return implementation != Implementation::fused || (testing::applies_to_fused(mode) && dtype != at::kDouble);
}

// Float64 where an implementation has it, and the tolerance that goes with the dtype.
at::ScalarType best_dtype(Implementation implementation) {
  return implementation == Implementation::fused ? at::kFloat : at::kDouble;
}
double tolerance(Implementation implementation) {
  return implementation == Implementation::fused ? 1e-5 : 1e-9;
}

TEST(Cases, ImplementationsAgreeOnAllOfThem) {
  for (const AttentionCase& c : testing::attention_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const TorchCase problem = testing::torch_case(c, 1);
    const Outcome a = evaluate(problem, Implementation::composed), b = evaluate(problem, Implementation::reference);
    EXPECT_TRUE(near(a.out, b.out) && near(a.energy, b.energy));
    EXPECT_TRUE(near(a.q, b.q) && near(a.k, b.k) && near(a.v, b.v));
    EXPECT_TRUE(near(a.positions, b.positions) && near(a.alpha, b.alpha, 1e-7));
  }
}

TEST(Cases, NothingIsEverNaNInAnyDtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const AttentionCase& c : cases_of(testing::degenerate_forests())) {
      for (const Implementation implementation : kImplementations) {
        if (!applies(implementation, c.mode, dtype)) continue;
        SCOPED_TRACE(::testing::PrintToString(c) + " " + c10::toString(dtype));
        const Outcome outcome = evaluate(testing::torch_case(c, 2, dtype), implementation);
        EXPECT_EQ(outcome.out.scalar_type(), dtype);
        for (const at::Tensor& tensor :
             {outcome.out, outcome.q, outcome.k, outcome.v, outcome.positions, outcome.alpha}) {
          EXPECT_TRUE(!tensor.defined() || tensor.isfinite().all().item<bool>());
        }
        EXPECT_FALSE(outcome.energy.isnan().any().item<bool>());
      }
    }
  }
}

TEST(Cases, LowerPrecisionIsCloseToFloat64) {
  for (const auto& [dtype, error] :
       std::vector<std::pair<at::ScalarType, double>>{{at::kFloat, 1e-5}, {at::kBFloat16, 3e-2}, {at::kHalf, 5e-3}}) {
    for (const AttentionCase& c : cases_of(testing::ordinary_forests())) {
      if (c.mode.alpha != 1) continue;
      SCOPED_TRACE(::testing::PrintToString(c) + " " + c10::toString(dtype));
      const TorchCase low = testing::torch_case(c, 3, dtype);
      const Outcome b = evaluate(low.to(at::kDouble), Implementation::reference);  // the same rounded numbers
      for (const Implementation implementation : {Implementation::composed, Implementation::fused}) {
        if (!applies(implementation, c.mode)) continue;
        const Outcome a = evaluate(low, implementation);
        EXPECT_TRUE(near(a.out.to(at::kDouble), b.out, error));
        EXPECT_TRUE(near(a.q.to(at::kDouble), b.q, error) && near(a.k.to(at::kDouble), b.k, error));
        EXPECT_TRUE(near(a.v.to(at::kDouble), b.v, error));
      }
    }
  }
}

TEST(Degenerate, ChainToOneLeafGivesZeroWithoutSelfAndItsValueWithSelf) {
  for (const AttentionCase& c : cases_of(testing::degenerate_forests())) {
    if (c.name != "chain_to_one_leaf" && c.name != "bare_leaf") continue;
    for (const Implementation implementation : kImplementations) {
      if (!applies(implementation, c.mode)) continue;
      SCOPED_TRACE(::testing::PrintToString(c));
      TorchCase problem = testing::torch_case(c, 4, best_dtype(implementation));
      problem.grad_energy.zero_();
      const Outcome outcome = evaluate(problem, implementation);
      const at::Tensor value = problem.v.expand_as(outcome.out);
      EXPECT_TRUE(near(outcome.out, c.mode.include_self ? value : at::zeros_like(value), 1e-15));
      const at::Tensor through = problem.grad_out.sum(1, true);
      EXPECT_TRUE(near(outcome.v, c.mode.include_self ? through : at::zeros_like(through), 1e-15));
      EXPECT_TRUE((outcome.q == 0).all().item<bool>() && (outcome.k == 0).all().item<bool>());
      EXPECT_EQ(outcome.energy.isneginf().all().item<bool>(), !c.mode.include_self);
    }
  }
}

TEST(Degenerate, WeightsAreExactlyZeroAtAlphaTwo) {
  const Forest forest = windows(Array{4}, {});
  AttentionOptions options;
  options.alpha = at::ones({}, at::kDouble) * 2;
  options.scale = 1;
  const at::Tensor q = at::ones({4, 1, 1}, at::kDouble);
  const at::Tensor k = testing::tensor_of(std::vector<double>{0, 1, 9, 9.5}, {4, 1, 1});
  for (const Implementation implementation : {Implementation::composed, Implementation::reference}) {
    options.implementation = implementation;
    const at::Tensor row = attention_matrix(q, k, forest, options).select(0, 0).select(0, 0);
    EXPECT_TRUE(near(row, testing::tensor_of(std::vector<double>{0, 0, 0.25, 0.75}, {4}), 1e-12));
    EXPECT_EQ(row[1].item<double>(), 0);
  }
}

TEST(Degenerate, NaNReachesTheOutputsThatDependOnIt) {
  const Forest forest = windows(Array{4}, {});
  for (const testing::AttentionMode& mode : testing::attention_modes()) {
    AttentionCase c;
    c.forest = forest, c.mode = mode;
    for (const Implementation implementation : kImplementations) {
      if (!applies(implementation, mode)) continue;
      TorchCase problem = testing::torch_case(c, 5, best_dtype(implementation));
      problem.q[3].fill_(NAN);
      const at::Tensor out = attention(problem.q, problem.k, problem.v, forest, problem.options(implementation));
      EXPECT_TRUE(out[3].isnan().all().item<bool>()) << mode;
      EXPECT_FALSE(out[0].isnan().any().item<bool>()) << mode;
    }
  }
}

TEST(ReadingOff, EnergyOfAFlatTreeIsTheMeanLogSumExp) {
  const at::Tensor q = at::randn({5, 2, 3}, at::kDouble), k = at::randn({5, 2, 3}, at::kDouble);
  AttentionOptions options;
  options.include_self = true;
  const at::Tensor scores = q.transpose(0, 1).matmul(k.transpose(0, 1).transpose(1, 2)) / std::sqrt(3.0);
  const at::Tensor expected = scores.logsumexp({-1}).mean(-1).unsqueeze(0);
  EXPECT_TRUE(near(energy(q, k, windows(Array{5}, {}), options), expected, 1e-12));
}

TEST(ReadingOff, NodeMassSumsTheRowsOfTheMatrix) {
  for (const AttentionCase& c : testing::attention_cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const Forest& forest = c.forest;
    const int64_t leaves = forest.num_leaves();
    for (const Implementation implementation : kImplementations) {
      if (!applies(implementation, c.mode)) continue;
      const TorchCase problem = testing::torch_case(c, 6, best_dtype(implementation));
      const AttentionOptions options = problem.options(implementation);
      const at::Tensor matrix = attention_matrix(problem.q, problem.k, forest, options);  // [T, H, T]
      const Array counts = forest.leaf_counts(), begin = forest.tree_leaf_begin();
      const auto mass_of_row = [&](const at::Tensor& row) {  // [H, T] -> [nodes, H]
        at::Tensor mass = at::zeros({forest.num_nodes(), c.heads}, at::kDouble);
        for (int64_t n = 0; n < forest.num_nodes(); ++n) {
          mass[n].copy_(row.narrow(1, forest.first_leaf()[n], counts[n]).sum(1));
        }
        return mass;
      };
      if (leaves > 0) {
        const int64_t leaf = leaves / 2;
        EXPECT_TRUE(near(node_mass(problem.q, problem.k, forest, leaf, options), mass_of_row(matrix[leaf]),
                         tolerance(implementation)));
      }
      at::Tensor rows = at::zeros({c.heads, leaves}, at::kDouble);
      for (int64_t t = 0; t < forest.num_trees(); ++t) {
        const int64_t count = begin[t + 1] - begin[t];
        if (count > 0) rows += matrix.narrow(0, begin[t], count).mean(0);
      }
      EXPECT_TRUE(near(node_mass(problem.q, problem.k, forest, std::nullopt, options), mass_of_row(rows),
                       tolerance(implementation)));
    }
  }
}

TEST(ForestTensors, AreMadeOnceAndShared) {
  const ForestTensors forest(windows(Array{9, 4}, Branching::parse("3")));
  const ForestTensors copy = forest;
  for (const Causal causal : {Causal::none, Causal::prefix}) {
    const auto plan = forest.plan(Tie::block, causal), again = copy.plan(Tie::block, causal);
    ASSERT_EQ(plan.size(), again.size());
    for (size_t i = 0; i < plan.size(); ++i) EXPECT_TRUE(plan[i].is_same(again[i]));
  }
  EXPECT_EQ(forest.arrays().size(), 3);
  EXPECT_EQ(forest.device(), at::Device(at::kCPU));
  const at::Tensor q = at::randn({13, 2, 3}), k = at::randn({13, 2, 3}), v = at::randn({13, 2, 4});
  const at::Tensor first = attention(q, k, v, forest);
  EXPECT_TRUE(first.equal(attention(q, k, v, copy)));
  EXPECT_TRUE(first.equal(attention(q, k, v, forest.forest())));
}

TEST(Positions, WithoutAnIndexArePlacesInTheFamily) {
  const Forest forest = windows(Array{7}, Branching::parse("3"));
  const at::Tensor q = at::randn({7, 1, 2}, at::kDouble);
  AttentionOptions options;
  options.positions = at::randn({3, 1, 2}, at::kDouble);
  const at::Tensor by_default = attention(q, q, q, forest, options);
  options.position_index = testing::tensor_of(forest.sibling_index(), {forest.num_nodes()});
  EXPECT_TRUE(by_default.equal(attention(q, q, q, forest, options)));
}

TEST(Depth, ChainOfAMillionNodes) {
  Array preorder(1'000'000, 1);
  preorder.back() = kItem;
  const ForestTensors forest(from_nested(preorder));
  AttentionOptions options;
  for (const Implementation implementation : {Implementation::composed, Implementation::fused}) {
    const at::Tensor q = at::randn({1, 1, 1}, best_dtype(implementation));
    for (const testing::AttentionMode& mode : testing::attention_modes({1})) {
      if (!applies(implementation, mode)) continue;
      options.tie = mode.tie, options.causal = mode.causal, options.include_self = mode.include_self;
      options.implementation = implementation;
      const at::Tensor out = attention(q, q, q, forest, options);
      EXPECT_TRUE(near(out, mode.include_self ? q : at::zeros_like(q), 1e-12)) << mode;
    }
  }
}

// At each level one leaf and one deeper node.
TorchCase comb(int64_t depth) {
  Array preorder;
  for (int64_t d = 0; d < depth; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  AttentionCase c;
  c.forest = from_nested(preorder);
  c.mode.include_self = true;
  c.heads = c.dim = c.value_dim = 1, c.position_dim = 0;
  return testing::torch_case(c, 7);
}

TEST(Depth, CombOfDepth20000) {
  const TorchCase problem = comb(20'000);
  const auto out = [&](Implementation implementation) {
    return attention(problem.q, problem.k, problem.v, problem.forest, problem.options(implementation));
  };
  EXPECT_TRUE(near(out(Implementation::composed), out(Implementation::reference)));
}

TEST(Depth, GradientsOnACombOfDepth2000) {
  const TorchCase problem = comb(2000);
  const Outcome a = evaluate(problem, Implementation::composed), b = evaluate(problem, Implementation::reference);
  EXPECT_TRUE(near(a.out, b.out) && near(a.energy, b.energy));
  EXPECT_TRUE(near(a.q, b.q) && near(a.k, b.k) && near(a.v, b.v));
}

template <class Call>
std::string value_error(Call&& call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

// A correct call, from which each test changes one thing.
struct Call {
  at::Tensor q = at::randn({4, 4, 3}), k = at::randn({4, 2, 3}), v = at::randn({4, 2, 5});
  Forest forest = windows(Array{4}, Branching::parse("2"));
  AttentionOptions options;

  std::string error() const {
    return value_error([&] { attention(q, k, v, forest, options); });
  }
};

TEST(WrongCalls, ACorrectOneHasNoError) {
  EXPECT_EQ(Call().error(), "(no error)");
}

TEST(WrongCalls, NameRanksShapesAndHeads) {
  Call call;
  call.q = at::randn({4, 3});
  EXPECT_EQ(call.error(), "attention: q has shape [4, 3]; expected [leaves, heads, dim]");
  call = {};
  call.k = call.k[0];
  EXPECT_EQ(call.error(), "attention: k has shape [2, 3]; expected [leaves, key heads, dim]");
  call = {};
  call.v = call.v[0];
  EXPECT_EQ(call.error(), "attention: v has shape [2, 5]; expected [leaves, key heads, value dim]");
  call = {};
  call.k = at::randn({4, 3, 3});
  EXPECT_EQ(call.error(), "attention: k has 3 heads, q has 4; heads of k must divide heads of q");
  call = {};
  call.v = at::randn({4, 4, 5});
  EXPECT_EQ(call.error(), "attention: v has 4 heads, k has 2; they must be equal");
  call = {};
  call.k = at::randn({4, 2, 2});
  EXPECT_EQ(call.error(), "attention: k has dimension 2, q has 3; they must be equal");
  call = {};
  call.k = at::randn({5, 2, 3});
  EXPECT_EQ(call.error(), "attention: q, k and v have 4, 5 and 4 rows; they must be equal");
  call = {};
  call.q = at::randn({4, 0, 3});
  EXPECT_EQ(call.error(), "attention: q has shape [4, 0, 3]; it needs at least one head and one dimension");
  call = {};
  call.forest = windows(Array{5}, {});
  EXPECT_EQ(call.error(), "attention: q has 4 rows, the forest has 5 leaves; they must be equal");
}

TEST(WrongCalls, NameDtypes) {
  Call call;
  call.k = call.k.to(at::kDouble);
  EXPECT_EQ(call.error(), "attention: k is Double, q is Float; they must have one dtype");
  call = {};
  for (at::Tensor* input : {&call.q, &call.k, &call.v}) *input = input->to(at::kInt);
  EXPECT_EQ(call.error(), "attention: q is Int; expected float32, float64, bfloat16 or float16");
}

TEST(WrongCalls, NamePositions) {
  Call call;
  call.options.position_index = at::zeros({call.forest.num_nodes()}, at::kLong);
  EXPECT_EQ(call.error(), "attention: position_index given without positions; they belong together");
  call.options.positions = at::randn({3, 2, 5});
  EXPECT_EQ(call.error(), "attention: positions have 2 heads, q has 4; they must be equal");
  call.options.positions = at::randn({3, 4, 5});
  EXPECT_EQ(call.error(), "(no error)");
  call.options.position_index = at::zeros({4}, at::kLong);
  EXPECT_EQ(call.error(), "attention: position_index has shape [4]; expected [7], one entry a node of the forest");
  call.options.position_index = at::zeros({7}, at::kInt);
  EXPECT_EQ(call.error(), "attention: position_index is Int; expected int64");
  call.options.position_index = at::arange(-2, 5, at::kLong);
  EXPECT_EQ(call.error(),
            "attention: position_index runs from -2 to 4; expected -1 (none) to 2, the last row of positions");
}

TEST(WrongCalls, NameOptions) {
  Call call;
  call.options.causal = Causal::prefix;
  call.options.include_self = false;
  EXPECT_EQ(call.error(), "attention: include_self is off; causal=prefix needs it");
  call = {};
  call.options.scale = INFINITY;
  EXPECT_EQ(call.error(), "attention: scale is inf; expected a finite number");
  call = {};
  call.options.alpha = at::ones({}) * 2.5;
  EXPECT_EQ(call.error(), "attention: alpha runs from 2.5 to 2.5; expected 1 to 2");
  call.options.alpha = at::ones({1, 1});
  EXPECT_EQ(call.error(), "attention: alpha has shape [1, 1]; expected one value or one a level");
  call.options.alpha = at::ones({1}, at::kInt);
  EXPECT_EQ(call.error(), "attention: alpha is Int; expected a floating-point number or tensor");
  call.options.alpha = at::ones({2});
  call.options.tie = Tie::none;
  EXPECT_EQ(call.error(), "attention: alpha has 2 values; with tie=none there is one");
  call = {};
  call.forest = windows(Array{4}, Branching::parse("2,1,2"));
  call.options.alpha = at::ones({2});
  EXPECT_EQ(call.error(),
            "attention: alpha has 2 values, the forest has 3 levels of families; expected one value or one a level");
}

TEST(WrongCalls, NameWhatCannotBeReadOff) {
  const Call call;
  EXPECT_EQ(value_error([&] { node_mass(call.q, call.k, call.forest, 4); }),
            "node_mass: leaf 4 is out of range; the forest has 4 leaves");
  EXPECT_EQ(value_error([&] { node_mass(call.q, call.k, windows(Array{5}, {})); }),
            "node_mass: q has 4 rows, the forest has 5 leaves; they must be equal");
  EXPECT_EQ(value_error([&] { energy(call.q[0], call.k, call.forest); }),
            "attention: q and k have 2 and 3 dimensions; expected [leaves, heads, dim]");
  const at::Tensor many = at::zeros({8193, 1, 1});
  EXPECT_EQ(value_error([&] { attention_matrix(many, many, windows(Array{8193}, {})); }),
            "attention_matrix: 8193 leaves give a matrix of 8193 x 8193 a head; at most 8192 leaves, or use node_mass");
}

}  // namespace
}  // namespace ramify
