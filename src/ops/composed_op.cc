// The composed implementation behind the op.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/composed/composed.h"
#include "ops/implementations.h"

namespace ramify::composed_op {
namespace {

// Inside the kernel of an op autograd may be switched off for the thread: a compiled graph calls us below autograd, a
// caller may be in inference mode. This switches it on for a while, and autocast off: precision is ours to choose.
class AutogradScope {
 public:
  AutogradScope()
      : ordinary_(false),
        no_autocast_(c10::autocast_dispatch_keyset),
        saved_(c10::impl::tls_local_dispatch_key_set()),
        grad_mode_(true) {
    c10::impl::LocalDispatchKeySet with_autograd = saved_;
    with_autograd.excluded_ = saved_.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    c10::impl::_force_tls_local_dispatch_key_set(with_autograd);
  }
  ~AutogradScope() { c10::impl::_force_tls_local_dispatch_key_set(saved_); }
  AutogradScope(const AutogradScope&) = delete;
  AutogradScope& operator=(const AutogradScope&) = delete;

 private:
  c10::InferenceMode ordinary_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
  c10::impl::LocalDispatchKeySet saved_;
  at::AutoGradMode grad_mode_;
};

}  // namespace

AttentionOutput forward(const Problem& problem) {
  at::NoGradGuard no_grad;
  return composed::attention(problem, ExactAttention());
}

AttentionGradients backward(const Problem& given, const at::Tensor& grad_out, const at::Tensor& grad_energy) {
  AutogradScope autograd;
  Problem problem = given;
  std::vector<at::Tensor> inputs;
  for (at::Tensor* input : {&problem.q, &problem.k, &problem.v, &problem.positions, &problem.alpha}) {
    if (!input->defined()) continue;
    *input = (input->is_inference() ? input->clone() : input->detach()).requires_grad_();
    inputs.push_back(*input);
  }
  const AttentionOutput output = composed::attention(problem, ExactAttention());
  std::vector<at::Tensor> results, seeds;
  const auto add = [&](const at::Tensor& result, const at::Tensor& seed) {
    if (!result.requires_grad()) return;  // nothing of it depends on the inputs
    results.push_back(result);
    seeds.push_back(seed);
  };
  add(output.out, grad_out);
  add(output.energy, grad_energy);
  std::vector<at::Tensor> gradients(inputs.size());
  if (!results.empty()) {
    gradients = torch::autograd::grad(results, inputs, seeds, /*retain_graph=*/false, /*create_graph=*/false,
                                      /*allow_unused=*/true);
  }
  size_t next = 0;
  const auto gradient_of = [&](const at::Tensor& input) {
    if (!input.defined()) return at::Tensor();
    const at::Tensor gradient = gradients[next++];
    return gradient.defined() ? gradient : at::zeros_like(input);
  };
  AttentionGradients result;
  result.q = gradient_of(problem.q);
  result.k = gradient_of(problem.k);
  result.v = gradient_of(problem.v);
  result.positions = gradient_of(problem.positions);
  result.alpha = gradient_of(problem.alpha);
  return result;
}

}  // namespace ramify::composed_op
