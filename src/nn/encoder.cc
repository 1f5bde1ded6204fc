#include "ramify/nn/encoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>

#include "nn/leaf_embedding.h"
#include "nn/local_pooling.h"
#include "nn/position_features.h"

namespace ramify::nn {
namespace {

constexpr const char* kPooled = "pooled";

void check(const std::vector<Modality>& modalities) {
  std::set<std::string> names = {kPooled};
  for (const Modality& modality : modalities) {
    TORCH_CHECK_VALUE(!modality.name.empty() && modality.name.find('.') == std::string::npos, "encoder: '",
                      modality.name, "' cannot name a modality; expected a name without dots");
    TORCH_CHECK_VALUE(names.insert(modality.name).second, "encoder: two modalities are called ", modality.name);
    TORCH_CHECK_VALUE(modality.size > 0, "encoder: modality ", modality.name, " has size ", modality.size,
                      "; expected at least 1");
  }
  TORCH_CHECK_VALUE(!modalities.empty(), "encoder: no modalities; expected at least one");
}

}  // namespace

struct Encoder::State : LayerState {};

Encoder::Encoder(EncoderConfig config, std::vector<Modality> modalities, ModelInputs inputs)
    : config_(std::move(config)), modalities_(std::move(modalities)), inputs_(std::move(inputs)) {
  check(modalities_);
  for (Modality& modality : modalities_) {
    if (modality.feature != Feature::dense && modality.width == 0) modality.width = config_.token_width;
  }
  leaves_ = register_module("leaves", std::make_shared<LeafEmbedding>(modalities_));

  const auto attends = [](const LayerConfig& layer) { return layer.attention != Attention::none; };
  std::vector<LayerKind> positions;
  if (config_.positions && std::ranges::any_of(config_.layers, attends)) {
    const bool of_tokens =
        config_.keys == Keys::tokens && std::ranges::find(inputs_.domains, Domain::key) != inputs_.domains.end();
    const int64_t token_width = of_tokens ? leaves_->table(inputs_.key_table).size(1) : 0;
    positions_ = register_module("positions", std::make_shared<PositionFeatures>(config_, inputs_, token_width));
    positions = positions_->kinds();
  }

  auto layers = register_module("layers", std::make_shared<Module>());
  std::vector<LayerKind> kinds = leaves_->kinds();
  for (const LayerConfig& layer : config_.layers) {
    layers_.push_back(layers->register_module(std::to_string(layers_.size()),
                                              std::make_shared<Layer>(layer, config_.activation, kinds, positions)));
    if (layer.pooling.kind == LocalPooling::Kind::merge) kinds.clear();
    if (layer.pooling.kind != LocalPooling::Kind::none && (kinds.empty() || kinds.back().name != kPooled)) {
      kinds.push_back({kPooled, 0});
    }
    pooled_kind_.push_back(kinds.size() - 1);
    for (LayerKind& kind : kinds) kind.width = layer.width;
  }
}

// The vectors of the leaves, some of them gone in training.
std::vector<LeafRows> Encoder::embedded(const Batch& batch, bool training) const {
  std::vector<LeafRows> leaves = leaves_->forward(batch);
  if (!training || config_.token_dropout == 0) return leaves;
  for (LeafRows& part : leaves) {
    const at::Tensor ones = at::ones({part.rows.size(0), 1}, part.rows.options());
    part.rows = part.rows * at::dropout(ones, config_.token_dropout, training);
  }
  return leaves;
}

Encoder::State Encoder::first_state(const Batch& batch, bool training) const {
  State state{{.forest = batch.forest,
               .leaves = embedded(batch, training),
               .rows = {},
               .positions = {},
               .leaf = {},
               .leaf_count = {}}};
  if (!positions_) return state;
  const PositionInput& input = batch.positions;
  const bool of_tokens = config_.keys == Keys::tokens && input.keys.defined() && input.key_tokens.defined();
  state.positions =
      positions_->forward(batch, of_tokens ? leaves_->rows(inputs_.key_table, input.key_tokens) : at::Tensor());
  return state;
}

void Encoder::apply_layer(State& state, size_t layer) const {
  if (state.rows.defined()) take_apart(state);
  state.rows = layers_[layer]->forward(state.forest, state.leaves, state.positions, dtype_);
  const LocalPooling& pooling = config_.layers[layer].pooling;
  if (pooling.kind != LocalPooling::Kind::none) pool(state, pooling, pooled_kind_[layer]);
}

Encoding Encoder::forward(const Batch& batch) const {
  State state = first_state(batch, is_training());
  for (size_t l = 0; l < layers_.size(); ++l) apply_layer(state, l);
  const bool in_lower_precision = dtype_ != at::ScalarType::Undefined;
  return {state.forest, in_lower_precision ? state.rows.to(at::kFloat) : state.rows, state.leaf};
}

at::Tensor Encoding::of_inputs() const {
  return leaf.defined() ? leaves.index_select(0, leaf) : leaves;
}

Encoder::State Encoder::before_layer(const Batch& batch, int64_t layer, const char* caller) const {
  TORCH_CHECK_VALUE(layer >= 0 && layer < static_cast<int64_t>(layers_.size()), caller, ": layer ", layer,
                    "; the encoder has ", layers_.size(), " layers");
  State state = first_state(batch, /*training=*/false);
  for (int64_t l = 0; l < layer; ++l) apply_layer(state, static_cast<size_t>(l));
  if (state.rows.defined()) take_apart(state);
  return state;
}

std::optional<double> Encoder::zero_weights(const Batch& batch, int64_t layer) const {
  const at::NoGradGuard no_grad;
  const State state = before_layer(batch, layer, "zero_weights");
  return layers_[layer]->zero_weights(state.forest, state.leaves, state.positions);
}

at::Tensor Encoder::node_mass(const Batch& batch, int64_t layer) const {
  const at::NoGradGuard no_grad;
  const State state = before_layer(batch, layer, "node_mass");
  const at::Tensor mass =
      layers_[layer]->node_mass(state.forest, state.leaves, state.positions).to(at::kCPU, at::kFloat);
  if (!state.leaf.defined()) return mass;

  // Of each leaf of the batch, then summed up its tree.
  const Forest &pooled = state.forest.forest(), &forest = batch.forest.forest();
  const at::Tensor leaf = state.leaf.cpu();
  at::Tensor all = at::zeros({forest.num_nodes()}, at::kFloat);
  auto* of_node = all.mutable_data_ptr<float>();
  const std::vector<int64_t> parents = forest.parents();
  for (int64_t i = 0; i < forest.num_leaves(); ++i) {
    const int64_t holder = leaf.const_data_ptr<int64_t>()[i];
    of_node[forest.leaf_nodes()[i]] =
        mass.const_data_ptr<float>()[pooled.leaf_nodes()[holder]] / state.leaf_count[holder];
  }
  for (int64_t n = forest.num_nodes() - 1; n >= 0; --n) {
    if (parents[n] >= 0) of_node[parents[n]] += of_node[n];
  }
  return all;
}

void Encoder::set_table(std::string_view modality, const at::Tensor& values, bool trainable) {
  leaves_->set_table(modality, values, trainable);
}

void Encoder::set_table_gradient(TableGradient gradient) {
  leaves_->set_table_gradient(gradient);
}

std::vector<at::Tensor> Encoder::row_tables() const {
  return leaves_->row_tables();
}

void Encoder::set_compute_dtype(at::ScalarType dtype) {
  TORCH_CHECK_VALUE(dtype == at::kFloat || dtype == at::kBFloat16, "encoder: computes in float32 or bfloat16, not ",
                    dtype);
  dtype_ = dtype == at::kFloat ? at::ScalarType::Undefined : dtype;
}

}  // namespace ramify::nn
