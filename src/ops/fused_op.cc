// The fused CPU kernels behind the op: tensors in, tensors out, threads from torch. Those for CUDA are in cuda_op.cc.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/attention.h"
#include "ops/implementations.h"
#include "ops/plan_tensors.h"
#include "ops/torch_rows.h"
#include "ops/torch_threads.h"
#include "ops/warm_memory.h"

namespace ramify::fused_op {
namespace {

// A problem as the kernels take it. Keeps the tensors that `params` points into.
struct HostProblem {
  at::Tensor q, k, v, positions, node_position, self_position;
  cpu::AttentionParams params;

  explicit HostProblem(const Problem& p) : q(with_dense_rows(p.q)), k(with_dense_rows(p.k)), v(with_dense_rows(p.v)) {
    params.walk = walk_view(p.plan);
    const int64_t num_roots = p.forest[2].const_data_ptr<int64_t>()[p.num_trees()];
    TORCH_CHECK_VALUE(params.walk.totals.num_roots == num_roots &&
                          static_cast<int64_t>(params.walk.leaf_nodes.size()) == p.num_leaves(),
                      "attention: the plan was made for another forest");
    params.storage = storage_of(p.q.scalar_type());
    params.heads = q.size(1), params.key_heads = k.size(1);
    params.dim = q.size(2), params.value_dim = v.size(2);
    params.q = rows_of(q), params.k = rows_of(k), params.v = rows_of(v);
    params.scale = static_cast<float>(p.scale), params.include_self = p.include_self;
    params.tie = p.tie, params.causal = p.causal, params.window = p.window;
    if (p.positions.defined() && p.positions.size(2) > 0) take_positions(p);
  }

 private:
  void take_positions(const Problem& p) {
    positions = with_dense_rows(p.positions);
    params.position_dim = positions.size(2);
    params.positions = rows_of(positions);
    const at::Tensor index = p.position_index.contiguous();
    node_position = index.index_select(0, p.plan[3].select(1, kNodePositionNode));
    self_position = at::empty({p.num_leaves()}, at::kLong);
    self_position.index_copy_(0, p.plan[2].select(1, kLeafNumber),
                              index.index_select(0, p.plan[2].select(1, kLeafPositionNode)));
    params.node_position = integers(node_position, "positions of nodes");
    params.self_position = integers(self_position, "positions of leaves");
  }
};

// Trees without a node have no root.
at::Tensor tree_energy(const at::Tensor& root_energy, const at::Tensor& tree_begin) {
  const int64_t num_trees = tree_begin.size(0) - 1, heads = root_energy.size(1);
  if (root_energy.size(0) == num_trees) return root_energy;
  at::Tensor energy = at::full({num_trees, heads}, -std::numeric_limits<float>::infinity(), at::kFloat);
  const int64_t* begin = tree_begin.const_data_ptr<int64_t>();
  const float* from = root_energy.const_data_ptr<float>();
  float* to = energy.mutable_data_ptr<float>();
  for (int64_t t = 0; t < num_trees; ++t) {
    if (begin[t] < begin[t + 1]) std::copy_n(from + begin[t] * heads, heads, to + t * heads);
  }
  return energy;
}

at::Tensor root_gradient(const at::Tensor& grad_energy, const at::Tensor& tree_begin) {
  const at::Tensor dense = grad_energy.to(at::kFloat).contiguous();
  const int64_t* begin = tree_begin.const_data_ptr<int64_t>();
  const int64_t num_trees = tree_begin.size(0) - 1, heads = dense.size(1), num_roots = begin[num_trees];
  if (num_roots == num_trees) return dense;
  at::Tensor gradient = at::empty({num_roots, heads}, at::kFloat);
  for (int64_t t = 0; t < num_trees; ++t) {
    if (begin[t] == begin[t + 1]) continue;
    std::copy_n(dense.const_data_ptr<float>() + t * heads, heads,
                gradient.mutable_data_ptr<float>() + begin[t] * heads);
  }
  return gradient;
}

float* floats(const at::Tensor& tensor) {
  return tensor.mutable_data_ptr<float>();
}

}  // namespace

std::string why_not(const Problem& p) {
  const at::ScalarType dtype = p.q.scalar_type();
  if (p.q.is_cuda()) return cuda_op::why_not(p);
  if (!p.q.is_cpu()) return "the fused kernels run on the CPU and on CUDA";
  if (!cpu::is_supported()) return "this processor lacks the instructions of the fused kernels";
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    return "the fused kernels take float32, bfloat16 and float16";
  }
  if (p.q.size(2) > cpu::kMaxDim || p.v.size(2) > cpu::kMaxDim) {
    return "the fused kernels take dimensions up to " + std::to_string(cpu::kMaxDim);
  }
  if (p.alpha.defined()) return "the fused kernels are for alpha 1";
  if (p.positions.defined() && p.positions.size(2) > cpu::kMaxPositionDim) {
    return "the fused kernels take positions of up to " + std::to_string(cpu::kMaxPositionDim) + " dimensions";
  }
  return "";
}

AttentionOutput forward(const Problem& p, bool save, at::Tensor& saved) {
  if (p.q.is_cuda()) return cuda_op::forward(p, save, saved);
  const HostProblem host(p);
  const cpu::Threads threads = torch_threads();
  AttentionOutput output;
  output.out = warm_empty({p.num_leaves(), p.num_heads(), p.v.size(2)}, p.q.scalar_type());
  const at::Tensor root_energy = at::empty({host.params.walk.totals.num_roots, p.num_heads()}, at::kFloat);
  saved = warm_empty({cpu::saved_size(host.params)}, at::kFloat);
  // As large as backward's, which then gets the same memory: of two sizes one would be fresh in every step of training.
  // What forward does not touch costs nothing.
  const int64_t workspace_size =
      std::max(cpu::forward_workspace(host.params, threads.count), cpu::backward_workspace(host.params, threads.count));
  const at::Tensor workspace = warm_empty({workspace_size}, at::kFloat);
  cpu::forward(host.params, {rows_of(output.out), floats(root_energy), floats(saved)}, floats(workspace), threads);
  output.energy = tree_energy(root_energy, p.forest[2]);
  return output;
}

AttentionGradients backward(const Problem& p, const at::Tensor& given, const at::Tensor& grad_out,
                            const at::Tensor& grad_energy) {
  if (p.q.is_cuda()) return cuda_op::backward(p, given, grad_out, grad_energy);
  const HostProblem host(p);
  at::Tensor saved = given;
  if (!saved.defined() || saved.numel() == 0) forward(p, true, saved);  // the caller kept nothing
  TORCH_CHECK_VALUE(saved.is_cpu() && saved.scalar_type() == at::kFloat && saved.is_contiguous() &&
                        saved.numel() == cpu::saved_size(host.params),
                    "attention_backward: saved is not what attention gave for this call");
  const cpu::Threads threads = torch_threads();
  AttentionGradients result;
  result.q = warm_empty(p.q.sizes(), p.q.scalar_type());
  result.k = warm_empty(p.k.sizes(), p.q.scalar_type());
  result.v = warm_empty(p.v.sizes(), p.q.scalar_type());
  const at::Tensor dense_out = with_dense_rows(grad_out);
  const at::Tensor root = root_gradient(grad_energy, p.forest[2]);
  const at::Tensor workspace = warm_empty({cpu::backward_workspace(host.params, threads.count)}, at::kFloat);
  at::Tensor positions;
  if (p.positions.defined()) positions = at::zeros(p.positions.sizes(), at::kFloat);
  cpu::BackwardInput input;
  input.grad_out = rows_of(dense_out), input.grad_root_energy = floats(root), input.saved = floats(saved);
  input.num_positions = positions.defined() ? positions.size(0) : 0;
  cpu::backward(
      host.params, input,
      {rows_of(result.q), rows_of(result.k), rows_of(result.v), positions.defined() ? floats(positions) : nullptr},
      floats(workspace), threads);
  if (positions.defined()) result.positions = positions.to(p.positions.scalar_type());
  return result;
}

}  // namespace ramify::fused_op
