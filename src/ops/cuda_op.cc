// The CUDA kernels behind the op: tensors in, tensors out, on torch's current stream. Nothing waits for the device.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <c10/core/DeviceGuard.h>

#include <limits>

#include "kernels/cuda/attention.h"
#include "ops/block_walk_tensors.h"
#include "ops/current_stream.h"
#include "ops/implementations.h"
#include "ops/plan_tensors.h"
#include "ops/torch_rows.h"

namespace ramify::cuda_op {
namespace {

cuda::Rows device_rows(const at::Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.stride(0), tensor.stride(1)};
}

// Rows at 16 bytes and not too far apart, as groves want them.
at::Tensor with_aligned_rows(const at::Tensor& tensor) {
  const at::Tensor dense = with_dense_rows(tensor);
  const bool is_aligned = reinterpret_cast<uintptr_t>(dense.const_data_ptr()) % 16 == 0 && dense.stride(0) % 8 == 0 &&
                          dense.stride(1) % 8 == 0 && dense.stride(0) <= std::numeric_limits<int>::max();
  return is_aligned ? dense : dense.clone(at::MemoryFormat::Contiguous);
}

// All that is known without tensors.
cuda::AttentionParams shape_of(const Problem& p) {
  cuda::AttentionParams params;
  params.storage = p.q.scalar_type() == at::kFloat      ? cuda::Storage::float32
                   : p.q.scalar_type() == at::kBFloat16 ? cuda::Storage::bfloat16
                                                        : cuda::Storage::float16;
  params.heads = p.q.size(1), params.key_heads = p.k.size(1);
  params.dim = p.q.size(2), params.value_dim = p.v.size(2);
  params.scale = static_cast<float>(p.scale), params.include_self = p.include_self;
  params.tie = p.tie, params.causal = p.causal;
  if (p.positions.defined()) params.position_dim = p.positions.size(2);
  return params;
}

// A problem as the kernels take it. Keeps the tensors that `params` points into.
struct DeviceProblem {
  at::Tensor q, k, v, positions, node_position, self_position;
  cuda::AttentionParams params;

  explicit DeviceProblem(const Problem& p) : params(shape_of(p)) {
    const bool has_groves = cuda::takes_groves(params);
    const auto rows = has_groves ? with_aligned_rows : with_dense_rows;
    q = rows(p.q), k = rows(p.k), v = rows(p.v);
    params.q = device_rows(q), params.k = device_rows(k), params.v = device_rows(v);
    params.walk = block_walk_view(p.plan[4], p.plan[9], has_groves ? WalkKind::with_groves : WalkKind::without_groves);
    TORCH_CHECK_VALUE(params.walk.totals.num_leaves == p.num_leaves(),
                      "attention: the plan was made for another forest");
    if (params.position_dim > 0) take_positions(p);
  }

 private:
  void take_positions(const Problem& p) {
    positions = with_dense_rows(p.positions);
    params.positions = device_rows(positions);
    const at::Tensor index = p.position_index.contiguous();
    node_position = index.index_select(0, p.plan[3].select(1, kNodePositionNode));
    self_position = at::empty({p.num_leaves()}, index.options());
    self_position.index_copy_(0, p.plan[2].select(1, kLeafNumber),
                              index.index_select(0, p.plan[2].select(1, kLeafPositionNode)));
    params.node_position = node_position.const_data_ptr<int64_t>();
    params.self_position = self_position.const_data_ptr<int64_t>();
  }
};

bool has_empty_trees(const Problem& p, const DeviceProblem& device) {
  return device.params.walk.totals.num_roots != p.num_trees();
}

float* floats(const at::Tensor& tensor) {
  return tensor.mutable_data_ptr<float>();
}

}  // namespace

std::string why_not(const Problem& p) {
  const at::ScalarType dtype = p.q.scalar_type();
  if (!has_torch_cuda()) return "this build of ramify was made for a torch without CUDA";
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    return "the fused kernels take float32, bfloat16 and float16";
  }
  if (p.alpha.defined()) return "the fused kernels are for alpha 1";
  if (p.window > 0) return "the CUDA kernels have no window";
  const char* obstacle = cuda::why_not(shape_of(p));
  return obstacle ? obstacle : "";
}

AttentionOutput forward(const Problem& p, bool save, at::Tensor& saved) {
  const c10::DeviceGuard guard(p.q.device());
  const DeviceProblem device(p);
  const auto numbers = p.q.options().dtype(at::kFloat);
  AttentionOutput output;
  output.out = at::empty({p.num_leaves(), p.num_heads(), p.v.size(2)}, p.q.options());
  output.energy = at::empty({device.params.walk.totals.num_roots, p.num_heads()}, numbers);
  const cuda::Keep keep = save ? cuda::Keep::for_backward : cuda::Keep::nothing;
  saved = at::empty({cuda::saved_size(device.params, keep)}, numbers);
  cuda::forward(device.params, {device_rows(output.out), floats(output.energy), floats(saved), keep},
                current_stream(p.q.device()));
  if (has_empty_trees(p, device)) {
    const at::Tensor energy =
        at::full({p.num_trees(), p.num_heads()}, -std::numeric_limits<float>::infinity(), numbers);
    output.energy = energy.index_copy(0, trees_of_roots(p.plan[4], p.plan[9]), output.energy);
  }
  return output;
}

AttentionGradients backward(const Problem& p, const at::Tensor& given, const at::Tensor& grad_out,
                            const at::Tensor& grad_energy) {
  const c10::DeviceGuard guard(p.q.device());
  const DeviceProblem device(p);
  at::Tensor saved = given;
  if (!saved.defined() || saved.numel() == 0) forward(p, true, saved);  // the caller kept nothing
  TORCH_CHECK_VALUE(saved.device() == p.q.device() && saved.scalar_type() == at::kFloat && saved.is_contiguous() &&
                        saved.numel() == cuda::saved_size(device.params),
                    "attention_backward: saved is not what attention gave for this call");
  const auto numbers = p.q.options().dtype(at::kFloat);
  AttentionGradients result;
  result.q = at::empty(p.q.sizes(), p.q.options());
  result.k = at::empty(p.k.sizes(), p.q.options());
  result.v = at::empty(p.v.sizes(), p.q.options());
  const at::Tensor aligned_out = with_aligned_rows(grad_out);
  at::Tensor root = grad_energy.to(at::kFloat);
  if (has_empty_trees(p, device)) root = root.index_select(0, trees_of_roots(p.plan[4], p.plan[9]));
  root = root.contiguous();
  const at::Tensor workspace = at::empty({cuda::backward_workspace(device.params)}, numbers);
  cuda::BackwardInput input;
  input.grad_out = device_rows(aligned_out), input.grad_root_energy = floats(root), input.saved = floats(saved);
  at::Tensor positions, order, begin;
  if (p.positions.defined()) positions = at::empty(p.positions.sizes(), numbers);
  if (device.params.position_dim > 0) {
    const at::Tensor rows = at::cat({device.node_position, device.self_position});
    const auto [sorted, places] = at::sort(rows, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    order = places;
    begin = at::searchsorted(sorted, at::arange(positions.size(0) + 1, rows.options()));
    input.position_order = order.const_data_ptr<int64_t>(), input.position_begin = begin.const_data_ptr<int64_t>();
    input.num_positions = positions.size(0);
  }
  cuda::backward(device.params, input,
                 {device_rows(result.q), device_rows(result.k), device_rows(result.v),
                  positions.defined() ? floats(positions) : nullptr},
                 floats(workspace), current_stream(p.q.device()));
  if (positions.defined()) result.positions = positions.to(p.positions.scalar_type());
  return result;
}

}  // namespace ramify::cuda_op
