#include "ramify/nn/layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "nn/linear.h"
#include "nn/projections.h"
#include "nn/rows.h"
#include "ops/head_norm.h"

namespace ramify::nn {
namespace {

// Learned alphas: one for each of so many levels from the root; deeper ones share the last.
constexpr int64_t kAlphaLevels = 8;

std::vector<at::Tensor> leaves_of(const std::vector<LeafRows>& parts) {
  std::vector<at::Tensor> leaves;
  for (const LeafRows& part : parts) leaves.push_back(part.leaves);
  return leaves;
}

// a + b, in the memory of a where that will do: nobody else needs it.
at::Tensor plus(at::Tensor a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && !a.is_view() ? a.add_(b) : a + b;
}

}  // namespace

Layer::Layer(const LayerConfig& config, Activation activation, std::vector<LayerKind> leaves,
             std::vector<LayerKind> positions)
    : config_(config), activation_(activation) {
  if (config_.position_head_dim == 0) config_.position_head_dim = config_.head_dim;
  const int64_t inner = config_.heads * config_.head_dim;
  const bool attends = config_.attention != Attention::none;

  auto leaf_modules = register_module("leaves", std::make_shared<Module>());
  for (const LayerKind& kind : leaves) {
    leaves_.push_back(
        leaf_modules->register_module(kind.name, std::make_shared<Projections>(kind.width, inner, config_.attention)));
  }
  if (attends && !positions.empty()) {
    // See position_features.h for the scale.
    const double deviation = 1 / std::sqrt(static_cast<double>(config_.position_head_dim));
    auto position_modules = register_module("positions", std::make_shared<Module>());
    for (const LayerKind& kind : positions) {
      auto projection =
          std::make_shared<Linear>(kind.width, config_.heads * config_.position_head_dim, Bias::no, deviation);
      positions_.push_back(position_modules->register_module(kind.name, std::move(projection)));
    }
  }
  std::vector<std::string> norms = {"query_norm"};
  if (attends) norms.push_back("key_norm");
  if (config_.normalize_values) norms.push_back("value_norm");
  for (const std::string& norm : norms) {
    register_parameter(norm + "_weight", at::ones({config_.head_dim}));
    register_parameter(norm + "_bias", at::zeros({config_.head_dim}));
  }
  // The middle between softmax and sparsemax.
  if (attends && !config_.alpha) register_parameter("alpha", at::zeros({config_.tie == Tie::none ? 1 : kAlphaLevels}));
  output_ = register_module("output", std::make_shared<Linear>(inner, config_.width));
}

struct Layer::Heads {
  at::Tensor q, k, v;   // [T, heads, head_dim] in leaf order; k is undefined without attention
  at::Tensor residual;  // q, for what is added to it
};

Layer::Heads Layer::project(const std::vector<LeafRows>& leaves, at::ScalarType dtype) const {
  std::vector<std::vector<at::Tensor>> parts(config_.attention == Attention::none ? 2 : 3);  // by what, then by kind
  for (const LeafRows& kind : leaves) {
    const std::vector<at::Tensor> rows = leaves_[kind.kind]->forward(kind.rows, dtype);
    for (size_t p = 0; p < parts.size(); ++p) parts[p].push_back(rows[p]);
  }
  const auto joined = [&](const std::vector<at::Tensor>& rows) {
    const at::Tensor all = rows.size() == 1 ? rows[0] : interleave(rows, leaves_of(leaves));
    return all.view({all.size(0), config_.heads, config_.head_dim});
  };
  const auto [q, residual] =
      head_norm_for_two(joined(parts[0]), parameter("query_norm_weight"), parameter("query_norm_bias"));
  Heads heads{.q = q, .k = {}, .v = joined(parts[1]), .residual = residual};
  if (config_.normalize_values) heads.v = normalized("value_norm", heads.v);
  if (parts.size() == 3) heads.k = normalized("key_norm", joined(parts[2]));
  return heads;
}

at::Tensor Layer::normalized(const std::string& norm, const at::Tensor& rows) const {
  return head_norm(rows, parameter(norm + "_weight"), parameter(norm + "_bias"));
}

at::Tensor Layer::alpha(const ForestTensors& forest) const {
  if (config_.alpha) return *config_.alpha == 1 ? at::Tensor() : at::full({1}, *config_.alpha, at::kDouble);
  const at::Tensor alphas = 1 + parameter("alpha").sigmoid();
  const int64_t missing = forest.forest().num_levels() - 1 - alphas.size(0);
  if (missing <= 0 || config_.tie == Tie::none) return alphas;
  return at::cat({alphas, alphas.narrow(0, alphas.size(0) - 1, 1).expand({missing})});
}

AttentionOptions Layer::options(const ForestTensors& forest, const LayerPositions& positions,
                                at::ScalarType dtype) const {
  AttentionOptions options;
  options.include_self = config_.include_self;
  options.tie = config_.tie;
  options.alpha = alpha(forest);
  if (!positions.index.defined()) return options;
  std::vector<at::Tensor> rows;
  for (const PositionRows& part : positions.rows) {
    rows.push_back(positions_[part.kind]->forward(part.rows, dtype));
  }
  const at::Tensor all = rows.size() == 1 ? rows[0] : at::cat(rows);
  options.positions = all.view({all.size(0), config_.heads, config_.position_head_dim});
  options.position_index = positions.index;
  return options;
}

// What attention gives each leaf, or without attention its own value, and the residual: [T, heads, head_dim].
at::Tensor Layer::mixed(const Heads& heads, const ForestTensors& forest, const LayerPositions& positions,
                        at::ScalarType dtype) const {
  if (config_.attention == Attention::none) return heads.v + heads.residual;
  const AttentionOptions with = options(forest, positions, dtype);
  if (config_.favor_features == 0) return plus(attention(heads.q, heads.k, heads.v, forest, with), heads.residual);
  const FavorAttention inner(config_.favor_features);
  return composed_attention(heads.q, heads.k, heads.v, forest, with, inner).out + heads.residual;
}

at::Tensor Layer::forward(const ForestTensors& forest, const std::vector<LeafRows>& leaves,
                          const LayerPositions& positions, at::ScalarType dtype) const {
  if (leaves.empty()) return at::zeros({0, config_.width}, parameter("query_norm_weight").options());
  const Heads heads = project(leaves, dtype);
  const at::Tensor rows = mixed(heads, forest, positions, dtype);
  return output_->forward(rows.flatten(1), activation_, dtype);
}

at::Tensor Layer::node_mass(const ForestTensors& forest, const std::vector<LeafRows>& leaves,
                            const LayerPositions& positions) const {
  const Forest& trees = forest.forest();
  if (config_.attention != Attention::none && !leaves.empty()) {
    const auto dtype = at::ScalarType::Undefined;
    const Heads heads = project(leaves, dtype);
    return ramify::node_mass(heads.q, heads.k, forest, std::nullopt, options(forest, positions, dtype)).mean(1);
  }
  // Every leaf looks at itself.
  at::Tensor mass = at::zeros({trees.num_nodes()}, at::kFloat);
  auto* of_node = mass.mutable_data_ptr<float>();
  const std::vector<int64_t> counts = trees.leaf_counts(), parents = trees.parents();
  for (int64_t n = 0; n < trees.num_nodes(); ++n) {
    const int64_t parent = parents[n];
    of_node[n] = parent < 0 ? 1 : of_node[parent] * static_cast<float>(counts[n]) / static_cast<float>(counts[parent]);
  }
  return mass;
}

std::optional<double> Layer::zero_weights(const ForestTensors& forest, const std::vector<LeafRows>& leaves,
                                          const LayerPositions& positions) const {
  constexpr int64_t kColumns = 256;  // of the matrix of weights at a time
  const std::vector<int64_t> begin = forest.forest().tree_leaf_begin();
  const int64_t rows = forest.forest().num_leaves();
  int64_t pairs = config_.include_self ? 0 : -rows;
  for (size_t tree = 0; tree + 1 < begin.size(); ++tree) {
    pairs += (begin[tree + 1] - begin[tree]) * (begin[tree + 1] - begin[tree]);
  }
  if (config_.attention == Attention::none || leaves.empty() || pairs <= 0) return std::nullopt;
  const auto dtype = at::ScalarType::Undefined;
  const Heads heads = project(leaves, dtype);
  const AttentionOptions with = options(forest, positions, dtype);
  const at::Tensor identity = at::eye(rows, heads.k.options());
  int64_t seen = 0;
  for (int64_t column = 0; column < rows; column += kColumns) {
    const at::Tensor values = identity.narrow(1, column, std::min(kColumns, rows - column));
    const at::Tensor wide = values.unsqueeze(1).expand({rows, heads.k.size(1), values.size(1)}).contiguous();
    seen += attention(heads.q, heads.k, wide, forest, with).count_nonzero().item<int64_t>();
  }
  return 1 - static_cast<double>(seen) / static_cast<double>(pairs * heads.q.size(1));
}

}  // namespace ramify::nn
