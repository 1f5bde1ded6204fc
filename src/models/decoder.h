// Llama: a causal decoder with rotated positions, grouped heads and a gated inner part.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "models/layer_cache.h"
#include "models/layers.h"
#include "models/tensor_file.h"
#include "nn/linear.h"

namespace ramify::models {

class DecoderLayer : public nn::Module {
 public:
  explicit DecoderLayer(const ModelConfig& config);

  // q [T, H, d], k, v [T, Hkv, d] -> [T, H, d], or with heads joined.
  using Attend = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;
  // The rotation of each token, [T, head_dim / 2].
  struct Rotation {
    at::Tensor cosine, sine;
  };
  // [T, width] -> [T, width]
  at::Tensor forward(const at::Tensor& rows, const Rotation& rotation, const Attend& attend, Trace* trace) const;
  double attention_dropout() const { return is_training() ? config_.attention_dropout : 0; }
  void add_published(const std::string& prefix, NamedTensors& tensors) const;
  void set_compute_dtype(at::ScalarType dtype) { dtype_ = dtype; }
  void shrink_outputs(double factor);  // what it adds to its rows

 private:
  ModelConfig config_;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  std::shared_ptr<nn::Linear> qkv_, attention_output_, gate_up_, down_;
  std::shared_ptr<RmsNorm> attention_norm_, inner_norm_;
};

class Decoder : public nn::Module {
 public:
  enum class Output { own, tied, none };  // layer of its own, the table of words, or a model without one
  Decoder(const ModelConfig& config, Output output);

  // [T, width]: what the output layer gets. Attention is causal.
  at::Tensor forward(const PackedTexts& texts, const AttentionPlan& plan, Trace* trace = nullptr) const;
  // The same of tokens [n] that follow those of the cache, which then has them; after an exception it is of no use.
  at::Tensor extend(const at::Tensor& ids, DecoderCache& cache) const;
  // The same of a whole prompt, whose own attention is that of `plan` (any tree over it), for an empty cache that keeps
  // all keys and values: what follows looks at every token of the prompt.
  at::Tensor read_prompt(const PackedTexts& prompt, const AttentionPlan& plan, DecoderCache& cache) const;
  at::Tensor logits(const at::Tensor& rows) const;  // [T, vocabulary]; std::logic_error without an output

  const at::Tensor& output_weight() const;  // [vocabulary, width]; std::logic_error without an output

  // The type of matrix products and attention where that of the parameters is another: bfloat16 beside float32.
  void set_compute_dtype(at::ScalarType dtype);
  at::ScalarType compute_dtype() const { return dtype_; }  // Undefined: that of the parameters

  // Random weights to begin training with: normal, smaller where layers add to what comes from below.
  void initialize_for_training();

  const ModelConfig& config() const { return config_; }
  at::Device device() const { return words_->weight().device(); }
  NamedTensors published_tensors() const;

 private:
  using AttendLayer =
      std::function<at::Tensor(size_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;
  at::Tensor run(const at::Tensor& ids, const at::Tensor& positions, const AttendLayer& attend, Trace* trace) const;

  ModelConfig config_;
  Output kind_;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  std::shared_ptr<Table> words_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<nn::Linear> output_;  // its own
};

std::shared_ptr<Decoder> load_decoder(const std::string& folder);

// model.safetensors as Hugging Face has it (LlamaForCausalLM).
void save_decoder(const Decoder& decoder, const std::string& file);

}  // namespace ramify::models
