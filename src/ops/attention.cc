// The public C++ face: attention and what can be read off it.
#include "ramify/attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/composed/composed.h"
#include "ops/dispatch.h"
#include "ops/implementations.h"
#include "ops/op.h"
#include "ops/plan_tensors.h"

namespace ramify {

struct ForestTensors::State {
  Forest forest;
  at::Device device;
  std::vector<at::Tensor> arrays;
  std::mutex mutex;
  std::vector<at::Tensor> plans[2];  // by Queries
};

ForestTensors::ForestTensors(const Forest& forest, at::Device device)
    : state_(std::make_shared<State>(forest, device)) {
  const ForestArrays arrays = arrays_of(forest);
  state_->arrays = {arrays.first_child, arrays.level_begin, arrays.tree_begin};
}

const Forest& ForestTensors::forest() const {
  return state_->forest;
}
at::Device ForestTensors::device() const {
  return state_->device;
}
std::vector<at::Tensor> ForestTensors::arrays() const {
  return state_->arrays;
}

std::vector<at::Tensor> ForestTensors::plan(Tie tie, Causal causal) const {
  const Queries queries = queries_of(tie, causal);
  const std::lock_guard lock(state_->mutex);
  auto& plan = state_->plans[static_cast<int>(queries)];
  if (plan.empty()) plan = to_tensors(state_->forest, queries, state_->device);
  return plan;
}

namespace {

// What the op takes beside q, k and v.
struct OpArguments {
  std::vector<at::Tensor> forest, plan;
  std::optional<at::Tensor> positions, position_index, alpha;
  std::optional<double> scale;
  std::optional<bool> include_self;
  std::string_view tie, causal, implementation;
  int64_t window = 0;
};

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

OpArguments arguments(const ForestTensors& forest, const AttentionOptions& options) {
  OpArguments args;
  args.forest = forest.arrays();
  args.plan = forest.plan(options.tie, options.causal);
  args.positions = optional(options.positions);
  args.position_index = optional(options.position_index);
  if (args.positions && !args.position_index) {
    args.position_index = own_as_tensor(forest.forest().sibling_index()).to(forest.device());
  }
  args.alpha = optional(options.alpha);
  args.scale = options.scale, args.include_self = options.include_self;
  args.tie = name_of(options.tie), args.causal = name_of(options.causal);
  args.implementation = name_of(options.implementation);
  args.window = options.window;
  return args;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const OpArguments& a) {
  return call_attention(q, k, v, a.forest, a.plan, a.positions, a.position_index, a.alpha, a.scale, a.include_self,
                        a.tie, a.causal, a.implementation, /*save=*/false, a.window);
}

Problem checked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OpArguments& a) {
  return check({q, k, v, a.forest, a.plan, a.positions, a.position_index, a.alpha, a.scale, a.include_self, a.tie,
                a.causal, a.window});
}

void check_rank(const at::Tensor& q, const at::Tensor& k) {
  TORCH_CHECK_VALUE(q.dim() == 3 && k.dim() == 3, "attention: q and k have ", q.dim(), " and ", k.dim(),
                    " dimensions; expected [leaves, heads, dim]");
}

// Sums over the leaves below every node, [T, H] -> [nodes, H].
at::Tensor sum_leaves(const at::Tensor& leaf_values, const Forest& forest) {
  const at::Tensor values = leaf_values.to(at::kCPU, at::kDouble).contiguous();
  const int64_t heads = values.size(1);
  at::Tensor sums = at::zeros({forest.num_nodes(), heads}, at::kDouble);
  const double* value = values.const_data_ptr<double>();
  double* sum = sums.mutable_data_ptr<double>();
  for (int64_t n = forest.num_nodes() - 1; n >= 0; --n) {
    for (int64_t h = 0; h < heads; ++h) {
      if (forest.is_leaf(n)) sum[n * heads + h] = value[forest.first_leaf()[n] * heads + h];
      for (int64_t c = forest.first_child()[n]; c < forest.first_child()[n + 1]; ++c) {
        sum[n * heads + h] += sum[c * heads + h];
      }
    }
  }
  return sums;
}

// Row weights of Theta: one leaf's row, or the mean over each tree. [T, H, 1]
at::Tensor row_weights(const Forest& forest, std::optional<int64_t> leaf, int64_t heads,
                       const at::TensorOptions& options) {
  at::Tensor weights = at::zeros({forest.num_leaves(), heads, 1}, options);
  if (leaf) {
    weights.select(0, *leaf).fill_(1);
    return weights;
  }
  const std::vector<int64_t> begin = forest.tree_leaf_begin();
  for (size_t t = 0; t + 1 < begin.size(); ++t) {
    const int64_t count = begin[t + 1] - begin[t];
    if (count > 0) weights.narrow(0, begin[t], count).fill_(1.0 / static_cast<double>(count));
  }
  return weights;
}

// out = Theta v, so the gradient by v of a weighted sum of outputs is the same weighted sum of rows of Theta.
at::Tensor mass_of_nodes(const at::Tensor& q, const at::Tensor& k, const Forest& forest, OpArguments a,
                         std::optional<int64_t> leaf) {
  checked(q, k, /*v=*/k, a);
  const int64_t num_leaves = forest.num_leaves();
  TORCH_CHECK_VALUE(q.size(0) == num_leaves, "node_mass: q has ", q.size(0), " rows, the forest has ", num_leaves,
                    " leaves; they must be equal");
  TORCH_CHECK_VALUE(!leaf || (*leaf >= 0 && *leaf < num_leaves), "node_mass: leaf ", leaf.value_or(0),
                    " is out of range; the forest has ", num_leaves, " leaves");
  at::NoGradGuard no_grad;
  const at::ScalarType dtype = compute_dtype(q.scalar_type());
  const at::Tensor queries = q.to(dtype), keys = k.repeat_interleave(q.size(1) / k.size(1), 1).to(dtype);
  const at::Tensor values = queries.new_zeros({num_leaves, q.size(1), 1});
  if (a.positions) a.positions = a.positions->to(dtype);
  const at::Tensor no_energy = queries.new_zeros({forest.num_trees(), q.size(1)});
  const auto gradients = call_attention_backward(row_weights(forest, leaf, q.size(1), queries.options()), no_energy,
                                                 queries, keys, values, a.forest, a.plan, a.positions, a.position_index,
                                                 a.alpha, a.scale, a.include_self, a.tie, a.causal, a.implementation,
                                                 /*saved=*/std::nullopt, a.window);
  return sum_leaves(std::get<2>(gradients).squeeze(2), forest).to(queries.options());
}

at::Tensor node_mass_op(const at::Tensor& q, const at::Tensor& k, at::TensorList forest, at::TensorList plan,
                        const std::optional<at::Tensor>& positions, const std::optional<at::Tensor>& position_index,
                        const std::optional<at::Tensor>& alpha, std::optional<double> scale,
                        std::optional<bool> include_self, std::string_view tie, std::string_view causal,
                        std::string_view implementation, std::optional<int64_t> leaf, int64_t window) {
  const OpArguments arguments = {forest.vec(), plan.vec(), positions, position_index, alpha, scale,
                                 include_self, tie,        causal,    implementation, window};
  return mass_of_nodes(q, k, forest_from(arguments.forest), arguments, leaf);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ramify, m) {
  m.def(
      "node_mass(Tensor q, Tensor k, Tensor[] forest, Tensor[] plan, Tensor? positions, Tensor? "
      "position_index, "
      "Tensor? alpha, float? scale, bool? include_self, str tie, str causal, str implementation, int? leaf, int "
      "window=0) "
      "-> Tensor",
      node_mass_op);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ForestTensors& forest,
                     const AttentionOptions& options) {
  return std::get<0>(call(q, k, v, arguments(forest, options)));
}

std::string why_not_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ForestTensors& forest,
                          const AttentionOptions& options) {
  return fused_op::why_not(checked(q, k, v, arguments(forest, options)));
}

at::Tensor energy(const at::Tensor& q, const at::Tensor& k, const ForestTensors& forest,
                  const AttentionOptions& options) {
  check_rank(q, k);
  const at::Tensor no_values = k.new_zeros({k.size(0), k.size(1), 0});
  return std::get<1>(call(q, k, no_values, arguments(forest, options)));
}

at::Tensor attention_matrix(const at::Tensor& q, const at::Tensor& k, const ForestTensors& forest,
                            const AttentionOptions& options) {
  constexpr int64_t kMaxRows = 8192;
  check_rank(q, k);
  const int64_t rows = q.size(0);
  TORCH_CHECK_VALUE(rows <= kMaxRows, "attention_matrix: ", rows, " leaves give a matrix of ", rows, " x ", rows,
                    " a head; at most ", kMaxRows, " leaves, or use node_mass");
  const at::Tensor identity = at::eye(rows, k.options()).unsqueeze(1).expand({rows, k.size(1), rows});
  return attention(q, k, identity, forest, options);
}

at::Tensor node_mass(const at::Tensor& q, const at::Tensor& k, const ForestTensors& forest, std::optional<int64_t> leaf,
                     const AttentionOptions& options) {
  return mass_of_nodes(q, k, forest.forest(), arguments(forest, options), leaf);
}

AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ForestTensors& forest, const AttentionOptions& options,
                                   const InnerAttention& inner) {
  Problem problem = checked(q, k, v, arguments(forest, options));
  complete(problem);
  return composed::attention(problem, inner);
}

}  // namespace ramify
