#include "ramify/nn/model.h"

#include <ATen/ops/dropout.h>
#include <ATen/ops/zeros.h>

#include "nn/linear.h"
#include "nn/range_pooling.h"

namespace ramify::nn {

Model::Model(EncoderConfig config, std::vector<Modality> modalities, ModelInputs inputs, int64_t outputs)
    : outputs_(outputs) {
  TORCH_CHECK_VALUE(outputs > 0, "model: ", outputs, " outputs; expected at least 1");
  encoder_ = register_module("encoder",
                             std::make_shared<Encoder>(std::move(config), std::move(modalities), std::move(inputs)));
  const int64_t width = encoder_->width(), hidden = this->config().mlp_width;
  if (hidden > 0) hidden_ = register_module("hidden", std::make_shared<Linear>(width, hidden));
  output_ = register_module("output", std::make_shared<Linear>(hidden > 0 ? hidden : width, outputs));
}

at::Tensor Model::represent(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const {
  return pool_ranges(encoder_->forward(batch), leaf_begin, leaf_end, config().pooling_leaf);
}

at::Tensor Model::forward(const Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const {
  const auto thinned = [&](const at::Tensor& rows) { return at::dropout(rows, config().dropout, is_training()); };
  at::Tensor rows = thinned(represent(batch, leaf_begin, leaf_end));
  if (hidden_) rows = thinned(hidden_->forward(rows, config().activation));
  return output_->forward(rows);
}

Encoding Model::encode(const Batch& batch) const {
  return encoder_->forward(batch);
}
at::Tensor Model::node_mass(const Batch& batch, int64_t layer) const {
  return encoder_->node_mass(batch, layer);
}

at::Tensor Model::leaf_mass(const Batch& batch) const {
  const Forest& forest = batch.forest.forest();
  const auto layers = static_cast<int64_t>(config().layers.size());
  at::Tensor mass = at::zeros({forest.num_leaves()}, at::dtype(at::kDouble));
  auto* shares = mass.mutable_data_ptr<double>();
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (config().layers[static_cast<size_t>(layer)].attention == Attention::none) return {};
    const at::Tensor nodes = node_mass(batch, layer).to(at::kCPU, at::kDouble).contiguous();
    for (int64_t leaf = 0; leaf < forest.num_leaves(); ++leaf) {
      shares[leaf] += nodes.const_data_ptr<double>()[forest.leaf_nodes()[leaf]] / static_cast<double>(layers);
    }
  }
  return mass;
}

std::optional<double> Model::zero_weights(const Batch& batch) const {
  double sum = 0;
  int64_t sparse = 0;
  for (size_t layer = 0; layer < config().layers.size(); ++layer) {
    if (config().layers[layer].alpha == 1.0) continue;
    const std::optional<double> share = encoder_->zero_weights(batch, static_cast<int64_t>(layer));
    if (!share) continue;
    sum += *share;
    ++sparse;
  }
  return sparse > 0 ? std::optional(sum / static_cast<double>(sparse)) : std::nullopt;
}

// The plans of the attention, as long as layers keep the batch's forest; it keeps them.
void Model::prepare(const Batch& batch) const {
  for (const LayerConfig& layer : config().layers) {
    if (layer.attention == Attention::none || layer.pooling.kind != LocalPooling::Kind::none) return;
    batch.forest.plan(layer.tie, Causal::none);
  }
}

void Model::set_table(std::string_view modality, const at::Tensor& values, bool trainable) {
  encoder_->set_table(modality, values, trainable);
}
void Model::set_compute_dtype(at::ScalarType dtype) {
  encoder_->set_compute_dtype(dtype);
}

void Model::set_table_gradient(TableGradient gradient) {
  encoder_->set_table_gradient(gradient);
}

std::vector<at::Tensor> Model::row_tables() const {
  return encoder_->row_tables();
}

ParameterCounts Model::parameter_counts() const {
  ParameterCounts counts;
  for (const auto& entry : named_parameters()) {
    const bool in_table = entry.key().starts_with("encoder.leaves.") || entry.key() == "encoder.positions.key.table";
    (in_table ? counts.tables : counts.encoder) += entry.value().numel();
  }
  return counts;
}

}  // namespace ramify::nn
