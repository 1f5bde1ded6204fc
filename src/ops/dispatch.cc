#include "ops/dispatch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ops/implementations.h"
#include "ops/plan_tensors.h"

namespace ramify {
namespace {

Implementation choose(const Problem& problem, Implementation requested, const char* pass) {
  Implementation chosen = requested;
  if (requested == Implementation::automatic || requested == Implementation::fused) {
    const std::string obstacle = fused_op::why_not(problem);
    TORCH_CHECK_VALUE(requested == Implementation::automatic || obstacle.empty(),
                      "attention: implementation=fused: ", obstacle, "; use implementation=auto");
    chosen = obstacle.empty() ? Implementation::fused : Implementation::composed;
  }
  static const bool log = [] {
    const char* topics = std::getenv("RAMIFY_LOG");
    return topics && std::string_view(topics).find("dispatch") != std::string_view::npos;
  }();
  if (log) {
    // not std::cerr: where another libstdc++ is in the process, as with some builds of torch, its numbers may be broken
    const std::string line = std::string("ramify: attention ") + pass + ", " + std::to_string(problem.num_leaves()) +
                             " leaves, " + std::to_string(problem.num_heads()) + " heads, " +
                             c10::toString(problem.q.scalar_type()) + " on " + problem.q.device().str() + ": " +
                             std::string(name_of(chosen)) + "\n";
    std::fputs(line.c_str(), stderr);
  }
  return chosen;
}

}  // namespace

void complete(Problem& problem) {
  const Queries queries = queries_of(problem.tie, problem.causal);
  if (problem.plan.empty()) {
    problem.plan = to_tensors(forest_from(problem.forest), queries, problem.q.device());
  }
  check_plan(problem.plan, queries, problem.forest[0].numel() - 1);
  TORCH_CHECK_VALUE(problem.plan[1].device() == problem.q.device(), "attention: the forest is on ",
                    problem.plan[1].device(), ", q is on ", problem.q.device(), "; move one with .to()");
  const int64_t num_leaves = problem.plan[2].size(0);
  TORCH_CHECK_VALUE(num_leaves == problem.num_leaves(), "attention: q has ", problem.num_leaves(),
                    " rows, the forest has ", num_leaves, " leaves; they must be equal");
}

ForwardResult run_forward(Problem problem, Implementation requested, bool save) {
  save = save && !problem.plan.empty();
  complete(problem);
  ForwardResult result;
  switch (choose(problem, requested, "forward")) {
    case Implementation::fused:
      result.output = fused_op::forward(problem, save, result.saved);
      break;
    case Implementation::reference:
      result.output = reference_op::forward(problem);
      break;
    default:
      result.output = composed_op::forward(problem);
      break;
  }
  if (!save || !result.saved.defined()) result.saved = at::empty({0}, problem.q.options().dtype(at::kFloat));
  return result;
}

AttentionGradients run_backward(Problem problem, Implementation requested, const at::Tensor& saved,
                                const at::Tensor& grad_out, const at::Tensor& grad_energy) {
  complete(problem);
  switch (choose(problem, requested, "backward")) {
    case Implementation::fused:
      return fused_op::backward(problem, saved, grad_out, grad_energy);
    case Implementation::reference:
      return reference_op::backward(problem, grad_out, grad_energy);
    default:
      return composed_op::backward(problem, grad_out, grad_energy);
  }
}

}  // namespace ramify
