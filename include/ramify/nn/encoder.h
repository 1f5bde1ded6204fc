// The hierarchical transformer encoder: leaf embeddings, position features, layers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ramify/nn/batch.h"
#include "ramify/nn/config.h"
#include "ramify/nn/layer.h"
#include "ramify/nn/module.h"

namespace ramify::nn {

class LeafEmbedding;
class PositionFeatures;

// What beside the modalities may occur in batches.
struct ModelInputs {
  int64_t num_keys = 0;             // keys of PositionInput run from 0 to this, without it
  int64_t graph_features = 0;       // width of PositionInput.graph
  std::vector<Domain> domains;      // those that occur
  std::string key_table = "token";  // modality whose table holds key_tokens, for Keys::tokens
};

struct Encoding {
  ForestTensors forest;  // of the last layer: coarser than the batch's after local pooling
  at::Tensor leaves;     // [leaves of forest, width]
  at::Tensor leaf;       // [leaves of the batch] int64: the row of each; undefined: each has its own

  at::Tensor of_inputs() const;  // [leaves of the batch, width]
};

class Encoder : public Module {
 public:
  // Parameters are drawn from torch's default generator.
  Encoder(EncoderConfig config, std::vector<Modality> modalities, ModelInputs inputs);

  Encoding forward(const Batch& batch) const;

  // Share of the attention of its tree that every node of the batch's forest receives in a layer, [num_nodes] float32
  // on the CPU: 1 for a root (0 where there is nothing to attend to), and what a node has is the sum of its children.
  // After local pooling the leaves of a pooled one share alike. The forward pass up to there runs in evaluation mode.
  at::Tensor node_mass(const Batch& batch, int64_t layer) const;

  // The share of weights of attention that are exactly 0 in a layer (Layer::zero_weights), in evaluation mode.
  std::optional<double> zero_weights(const Batch& batch, int64_t layer) const;

  // Gives a modality of ids the vectors `values` [size, width]. Not trainable: no gradient is computed for them.
  void set_table(std::string_view modality, const at::Tensor& values, bool trainable);

  // The type of matrix products and attention: at::kFloat (that of the parameters) or at::kBFloat16. Parameters stay as
  // they are, results are float32; LayerNorm and softmax keep their statistics in float32.
  void set_compute_dtype(at::ScalarType dtype);

  void set_table_gradient(TableGradient gradient);  // of vectors of ids
  std::vector<at::Tensor> row_tables() const;       // that have gradients of some rows

  const EncoderConfig& config() const { return config_; }
  const std::vector<Modality>& modalities() const { return modalities_; }
  const ModelInputs& inputs() const { return inputs_; }
  int64_t width() const { return config_.layers.back().width; }

 private:
  struct State;  // between layers
  std::vector<LeafRows> embedded(const Batch& batch, bool training) const;
  State first_state(const Batch& batch, bool training) const;
  void apply_layer(State& state, size_t layer) const;
  State before_layer(const Batch& batch, int64_t layer, const char* caller) const;  // in evaluation mode

  EncoderConfig config_;
  std::vector<Modality> modalities_;
  ModelInputs inputs_;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  std::shared_ptr<LeafEmbedding> leaves_;
  std::shared_ptr<PositionFeatures> positions_;  // none where no layer attends
  std::vector<std::shared_ptr<Layer>> layers_;
  std::vector<size_t> pooled_kind_;  // behind each layer, among the kinds of the next
};

}  // namespace ramify::nn
