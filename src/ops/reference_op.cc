// The reference kernel behind the op: tensors of any float type and device in, the same out.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "kernels/reference/attention.h"
#include "ops/implementations.h"
#include "ops/plan_tensors.h"

namespace ramify::reference_op {
namespace {

template <class T>
std::span<const T> span_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

// A problem's tensors as the kernel reads them; `params` points into the tensors.
struct HostProblem {
  at::Tensor q, k, v, positions, position_index, alpha;
  reference::AttentionParams params;

  explicit HostProblem(const Problem& p) {
    const auto host = at::TensorOptions().device(at::kCPU).dtype(at::kDouble);
    q = p.q.detach().to(host).contiguous();
    k = p.k.detach().to(host).contiguous();
    v = p.v.detach().to(host).contiguous();
    positions = p.positions.defined() ? p.positions.detach().to(host).contiguous() : at::empty({0, 0, 0}, host);
    position_index = p.positions.defined() ? p.position_index.cpu().contiguous() : at::empty({0}, at::kLong);
    alpha = p.alpha.defined() ? p.alpha.detach().to(host).contiguous() : at::ones({1}, host);
    params.forest = forest_from(p.forest);
    TORCH_CHECK_VALUE(params.forest.num_leaves() == p.num_leaves(), "attention: q has ", p.num_leaves(),
                      " rows, the forest has ", params.forest.num_leaves(), " leaves; they must be equal");
    params.heads = p.q.size(1), params.key_heads = p.k.size(1);
    params.dim = p.q.size(2), params.value_dim = p.v.size(2), params.position_dim = positions.size(2);
    params.q = span_of<double>(q), params.k = span_of<double>(k), params.v = span_of<double>(v);
    params.positions = span_of<double>(positions);
    params.position_index = span_of<int64_t>(position_index);
    params.scale = p.scale, params.include_self = p.include_self;
    params.tie = p.tie, params.causal = p.causal, params.window = p.window;
    params.alpha = span_of<double>(alpha);
  }
};

at::Tensor tensor_from(const std::vector<double>& values, at::IntArrayRef shape, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor.to(options);
}

}  // namespace

AttentionOutput forward(const Problem& p) {
  const reference::AttentionResult result = reference::attention(HostProblem(p).params);
  return {tensor_from(result.out, {p.num_leaves(), p.num_heads(), p.v.size(2)}, p.q.options()),
          tensor_from(result.energy, {p.num_trees(), p.num_heads()},
                      p.q.options().dtype(compute_dtype(p.q.scalar_type())))};
}

AttentionGradients backward(const Problem& p, const at::Tensor& grad_out, const at::Tensor& grad_energy) {
  const auto host = at::TensorOptions().device(at::kCPU).dtype(at::kDouble);
  const at::Tensor out = grad_out.to(host).contiguous(), energy = grad_energy.to(host).contiguous();
  const auto gradients =
      reference::attention_backward(HostProblem(p).params, span_of<double>(out), span_of<double>(energy));
  const auto like = [](const std::vector<double>& values, const at::Tensor& input) {
    return input.defined() ? tensor_from(values, input.sizes(), input.options()) : at::Tensor();
  };
  return {like(gradients.q, p.q), like(gradients.k, p.k), like(gradients.v, p.v),
          like(gradients.positions, p.positions), like(gradients.alpha, p.alpha)};
}

}  // namespace ramify::reference_op
