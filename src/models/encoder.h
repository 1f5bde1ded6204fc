// BERT and RoBERTa: an encoder whose layers each have the attention that a plan gives them.
#pragma once

#include <memory>
#include <vector>

#include "models/layers.h"
#include "models/tensor_file.h"
#include "nn/linear.h"

namespace ramify::models {

class EncoderLayer : public nn::Module {
 public:
  explicit EncoderLayer(const ModelConfig& config);

  // [T, width] -> [T, width]
  at::Tensor forward(const at::Tensor& rows, AttentionInput input, Trace* trace) const;

  // Its tensors under the names of Hugging Face, `prefix` in front; parts of fused ones as views.
  void add_published(const std::string& prefix, NamedTensors& tensors) const;

 private:
  ModelConfig config_;
  std::shared_ptr<nn::Linear> qkv_, attention_output_, inner_, output_;
  std::shared_ptr<LayerNorm> attention_norm_, output_norm_;
};

class Encoder : public nn::Module {
 public:
  explicit Encoder(const ModelConfig& config);

  // [T, width]: a row a token. std::invalid_argument if the plan is for another number of layers.
  at::Tensor forward(const PackedTexts& texts, const AttentionPlan& plan, Trace* trace = nullptr) const;

  const ModelConfig& config() const { return config_; }
  NamedTensors published_tensors() const;
  void set_table_gradient(TableGradient gradient) { words_->set_gradient(gradient); }
  bool has_row_gradient() const { return words_->has_row_gradient(); }
  const at::Tensor& word_table() const { return words_->weight(); }  // [vocabulary, width]

 private:
  at::Tensor embed(const PackedTexts& texts) const;

  ModelConfig config_;
  std::shared_ptr<Table> words_, positions_, types_;
  std::shared_ptr<LayerNorm> norm_;
  std::vector<std::shared_ptr<EncoderLayer>> layers_;
};

// With the weights of a published folder.
std::shared_ptr<Encoder> load_encoder(const std::string& folder);
// With random ones, drawn from `seed`.
std::shared_ptr<Encoder> random_encoder(const ModelConfig& config, uint64_t seed);

}  // namespace ramify::models
