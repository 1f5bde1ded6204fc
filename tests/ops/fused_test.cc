// The fused kernels behind the op: as exact as ordinary float32, taken where they apply, and what passes between
// forward and backward.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

#include "generators/random_forest.h"
#include "kernels/cpu/attention.h"
#include "ops/torch_case.h"

namespace ramify {
namespace {

using testing::AttentionCase;
using testing::AttentionMode;
using testing::near;
using testing::Outcome;
using testing::TorchCase;
using Array = std::vector<int64_t>;

class Fused : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::is_supported()) GTEST_SKIP() << "no instruction set of this machine is among those compiled";
  }
};
class FusedLaws : public Fused {};  // those that take seconds

// Untied, both causal forms are the same: one of them is enough.
std::vector<AttentionMode> fused_modes() {
  std::vector<AttentionMode> modes = testing::attention_modes({1});
  std::erase_if(modes, [](const AttentionMode& mode) {
    return !applies_to_fused(mode) || (mode.tie == Tie::none && mode.causal == Causal::block);
  });
  return modes;
}

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

// Whether one float32 result is further from the exact one than `times` another; 1e-6 of the largest entry is nothing.
std::string excess(const char* name, at::Tensor fused, at::Tensor composed, at::Tensor exact, double times) {
  if (!exact.defined() || exact.numel() == 0) return "";
  const at::Tensor nothing = exact.isneginf();
  if (!fused.isneginf().equal(nothing)) return std::string(name) + " is -inf elsewhere";
  for (at::Tensor* tensor : {&fused, &composed, &exact}) *tensor = tensor->to(at::kDouble).masked_fill(nothing, 0);
  const double error = largest(fused - exact), allowed = times * largest(composed - exact) + 1e-6 * largest(exact);
  if (error <= allowed) return "";  // false for NaN
  return std::string(name) + " is off by " + std::to_string(error) + ", allowed " + std::to_string(allowed);
}

// The error of fused float32 against float64, beside that of composed float32: at most twice as much, three times for
// gradients. Empty: so it is.
std::string excess(const TorchCase& c, Implementation exact) {
  const Outcome fused = evaluate(c, Implementation::fused), composed = evaluate(c, Implementation::composed);
  const Outcome truth = evaluate(c.to(at::kDouble), exact);
  for (const std::string& found :
       {excess("out", fused.out, composed.out, truth.out, 2),
        excess("energy", fused.energy, composed.energy, truth.energy, 2),
        excess("gradient of q", fused.q, composed.q, truth.q, 3),
        excess("gradient of k", fused.k, composed.k, truth.k, 3),
        excess("gradient of v", fused.v, composed.v, truth.v, 3),
        excess("gradient of positions", fused.positions, composed.positions, truth.positions, 3)}) {
    if (!found.empty()) return found;
  }
  return "";
}

TEST_F(Fused, IsAsExactAsComposedOnTheListOfCases) {
  for (const AttentionCase& c : testing::attention_cases()) {
    if (!applies_to_fused(c.mode)) continue;
    EXPECT_EQ(excess(testing::torch_case(c, 1, at::kFloat), Implementation::reference), "") << c;
  }
}

TEST_F(FusedLaws, ErrorIsAtMostTwiceThatOfComposed) {
  EXPECT_TRUE(rc::check([] {
    AttentionCase c;
    c.forest = (*testing::tree_batches(12, {6, 150, 300})).forest();
    c.heads = *rc::gen::element(1, 2, 4);
    c.key_heads = c.heads == 1 ? 1 : *rc::gen::element(1, 2);
    c.dim = *rc::gen::element(1, 3, 8, 20, 64), c.value_dim = *rc::gen::element(1, 5, 16, 64);
    c.position_dim = *rc::gen::element(0, 2, 16);
    for (const AttentionMode& mode : fused_modes()) {
      c.mode = mode;
      RC_LOG() << c << " heads=" << c.heads << "/" << c.key_heads << " dim=" << c.dim << "/" << c.value_dim << "\n";
      const std::string found = excess(testing::torch_case(c, *testing::seeds(), at::kFloat), Implementation::composed);
      RC_ASSERT(found == "");
    }
  }));
}

TEST_F(FusedLaws, ErrorIsAtMostTwiceThatOfComposedOnLargeTrees) {
  std::vector<int64_t> comb;
  for (int64_t d = 0; d < 300; ++d) comb.insert(comb.end(), {2, kItem});
  comb.push_back(kItem);
  for (const Forest& forest : {windows(Array{2048}, Branching::parse("16*")), windows(Array{700}, {}),
                               windows(Array{1500, 300}, Branching::parse("2,4,8,16")), from_nested(comb)}) {
    for (const AttentionMode& mode : fused_modes()) {
      const bool has_leaf_queries = mode.tie == Tie::none || mode.causal == Causal::prefix;
      if (has_leaf_queries && forest.depth() > 100) continue;  // composed takes seconds
      AttentionCase c;
      c.forest = forest, c.mode = mode;
      c.heads = c.key_heads = 2, c.dim = c.value_dim = 16, c.position_dim = 0;
      EXPECT_EQ(excess(testing::torch_case(c, 2, at::kFloat), Implementation::composed), "")
          << mode << " " << forest.num_leaves() << " leaves";
    }
  }
}

TEST_F(FusedLaws, CombOfDepth20000) {
  Array preorder;
  for (int64_t d = 0; d < 20'000; ++d) preorder.insert(preorder.end(), {2, kItem});
  preorder.push_back(kItem);
  AttentionCase c;
  c.forest = from_nested(preorder);
  c.mode.include_self = true;
  c.heads = c.dim = c.value_dim = 1, c.position_dim = 0;
  const TorchCase problem = testing::torch_case(c, 3, at::kFloat);
  const TorchCase exact = problem.to(at::kDouble);
  const at::Tensor expected = attention(exact.q, exact.k, exact.v, c.forest, exact.options(Implementation::reference));
  const Outcome outcome = evaluate(problem, Implementation::fused);
  EXPECT_TRUE(near(outcome.out, expected, 1e-5));
  for (const at::Tensor& gradient : {outcome.q, outcome.k, outcome.v}) {
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

// A call that the fused kernels take, from which each test changes one thing.
struct FusedCall {
  at::Tensor q = at::randn({9, 4, 3}), k = at::randn({9, 2, 3}), v = at::randn({9, 2, 5});
  ForestTensors forest = windows(Array{9}, Branching::parse("3"));
  AttentionOptions options;

  at::Tensor run(Implementation implementation) const {
    AttentionOptions chosen = options;
    chosen.implementation = implementation;
    return attention(q, k, v, forest, chosen);
  }
  std::string error() const {
    try {
      run(Implementation::fused);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "(no error)";
  }
  std::string why_not() const { return why_not_fused(q, k, v, forest, options); }
  FusedCall to(at::ScalarType dtype) const {
    FusedCall call = *this;
    for (at::Tensor* input : {&call.q, &call.k, &call.v}) *input = input->to(dtype);
    return call;
  }
};

struct Obstacle {
  FusedCall call;
  std::string message;
};

std::vector<Obstacle> obstacles() {
  std::vector<Obstacle> all;
  all.push_back({FusedCall().to(at::kDouble), "the fused kernels take float32, bfloat16 and float16"});
  FusedCall call;
  call.options.alpha = at::ones({}) * 1.5;
  all.push_back({call, "the fused kernels are for alpha 1"});
  call = {};
  call.q = at::randn({9, 4, 513}), call.k = at::randn({9, 2, 513});
  all.push_back({call, "the fused kernels take dimensions up to 512"});
  call = {};
  call.v = at::randn({9, 2, 513});
  all.push_back({call, "the fused kernels take dimensions up to 512"});
  call = {};
  call.options.positions = at::randn({3, 4, 1025}) / 32;
  all.push_back({call, "the fused kernels take positions of up to 1024 dimensions"});
  return all;
}

TEST_F(Fused, SaysWhatItCannotDo) {
  EXPECT_EQ(FusedCall().error(), "(no error)");
  EXPECT_EQ(FusedCall().why_not(), "");
  for (const auto& [call, message] : obstacles()) {
    EXPECT_EQ(call.error(), "attention: implementation=fused: " + message + "; use implementation=auto");
    EXPECT_EQ(call.why_not(), message);
  }
}

TEST_F(Fused, IsReplacedByComposedWhereItCannotHelp) {
  for (const auto& [call, message] : obstacles()) {
    EXPECT_TRUE(call.run(Implementation::automatic).equal(call.run(Implementation::composed))) << message;
  }
}

TEST_F(Fused, IsTakenWhereItApplies) {
  FusedCall call;
  call.forest = windows(Array{700}, Branching::parse("5*"));
  call.q = at::randn({700, 4, 19}), call.k = at::randn({700, 2, 19}), call.v = at::randn({700, 2, 21});
  for (const AttentionMode& mode : fused_modes()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      FusedCall chosen = call.to(dtype);
      chosen.options.tie = mode.tie, chosen.options.causal = mode.causal;
      chosen.options.include_self = mode.include_self;
      const at::Tensor out = chosen.run(Implementation::automatic);
      EXPECT_TRUE(out.equal(chosen.run(Implementation::fused))) << mode;
      if (dtype != at::kFloat) continue;
      EXPECT_FALSE(out.equal(chosen.run(Implementation::composed))) << mode << ": other sums, other bits";
    }
  }
}

// The op itself, with the plan or without.
struct OpCall {
  at::Tensor q = at::randn({40, 2, 8}), k = at::randn({40, 2, 8}), v = at::randn({40, 2, 8});
  ForestTensors forest = windows(Array{40}, Branching::parse("4*"));

  at::Tensor saved(bool planned, bool save, const char* implementation = "fused") const {
    return std::get<2>(call_attention(q, k, v, forest.arrays(), plan(planned), {}, {}, {}, {}, {}, "block", "none",
                                      implementation, save, /*window=*/0));
  }
  auto backward(const std::optional<at::Tensor>& saved, bool planned = true) const {
    return call_attention_backward(at::ones({40, 2, 8}), at::ones({1, 2}), q, k, v, forest.arrays(), plan(planned), {},
                                   {}, {}, {}, {}, "block", "none", "fused", saved, /*window=*/0);
  }

 private:
  std::vector<at::Tensor> plan(bool planned) const {
    return planned ? forest.plan(Tie::block, Causal::none) : std::vector<at::Tensor>();
  }
};

TEST_F(Fused, SavesOnlyWhatWillBeUsed) {
  OpCall call;
  EXPECT_GT(call.saved(true, true).numel(), 0);
  EXPECT_EQ(call.saved(true, false).numel(), 0);
  EXPECT_EQ(call.saved(false, true).numel(), 0);
  EXPECT_EQ(call.saved(true, true, "composed").numel(), 0);
  call.q.requires_grad_();
  EXPECT_GT(call.saved(true, false).numel(), 0);
  EXPECT_FALSE(call.saved(true, false).requires_grad());
}

TEST_F(Fused, BackwardNeedsNothingSaved) {
  const OpCall call;
  const auto with = call.backward(call.saved(true, true)), without = call.backward({}),
             unplanned = call.backward({}, false);
  for (const auto& other : {without, unplanned}) {
    EXPECT_TRUE(std::get<0>(with).equal(std::get<0>(other)));
    EXPECT_TRUE(std::get<1>(with).equal(std::get<1>(other)));
    EXPECT_TRUE(std::get<2>(with).equal(std::get<2>(other)));
  }
}

TEST_F(Fused, BackwardRefusesWhatIsNotItsOwn) {
  const OpCall call;
  const at::Tensor saved = call.saved(true, true);
  for (const at::Tensor& other : {saved.narrow(0, 0, saved.numel() - 1), saved.to(at::kDouble),
                                  at::zeros({2 * saved.numel()}).slice(0, 0, 2 * saved.numel(), 2)}) {
    EXPECT_THROW(call.backward(other), c10::ValueError);
  }
}

TEST_F(Fused, GivesTheSameBitsWithAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const Forest& forest : {windows(Array{600, 70, 3}, Branching::parse("8*")), windows(Array{300}, {})}) {
    for (const AttentionMode& mode : fused_modes()) {
      AttentionCase c;
      c.forest = forest, c.mode = mode;
      c.heads = 4, c.key_heads = 2, c.dim = 20, c.value_dim = 16;
      const TorchCase problem = testing::torch_case(c, 4, at::kFloat);
      at::set_num_threads(1);
      const Outcome one = evaluate(problem, Implementation::fused);
      for (const int count : {2, 7}) {
        at::set_num_threads(count);
        const Outcome many = evaluate(problem, Implementation::fused);
        EXPECT_TRUE(one.out.equal(many.out) && one.energy.equal(many.energy)) << mode << " " << count;
        EXPECT_TRUE(one.q.equal(many.q) && one.k.equal(many.k) && one.v.equal(many.v)) << mode << " " << count;
        EXPECT_TRUE(one.positions.equal(many.positions)) << mode << " " << count;
      }
      at::set_num_threads(threads);
    }
  }
}

}  // namespace
}  // namespace ramify
