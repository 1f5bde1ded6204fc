#include "models/encoder.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>

#include <array>
#include <stdexcept>
#include <string>

#include "models/weights.h"

namespace ramify::models {
namespace {

// Heads for tasks.
constexpr std::array<std::string_view, 5> kIgnored = {"pooler.", "cls.", "lm_head.", "classifier.", "qa_outputs."};
constexpr std::array<std::string_view, 2> kPrefixes = {"bert.", "roberta."};

void add_linear(const std::string& name, const nn::Linear& linear, NamedTensors& tensors) {
  for (const auto& entry : linear.named_parameters()) tensors.emplace_back(name + "." + entry.key(), entry.value());
}

void add_norm(const std::string& name, const LayerNorm& norm, NamedTensors& tensors) {
  for (const auto& entry : norm.named_parameters()) tensors.emplace_back(name + "." + entry.key(), entry.value());
}

}  // namespace

EncoderLayer::EncoderLayer(const ModelConfig& config) : config_(config) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<nn::Linear>(in, out));
  };
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<LayerNorm>(config.width, config.norm_epsilon));
  };
  qkv_ = linear("qkv", config.width, 3 * config.width);
  attention_output_ = linear("attention_output", config.width, config.width);
  attention_norm_ = norm("attention_norm");
  inner_ = linear("inner", config.width, config.inner_width);
  output_ = linear("output", config.inner_width, config.width);
  output_norm_ = norm("output_norm");
}

at::Tensor EncoderLayer::forward(const at::Tensor& rows, AttentionInput input, Trace* trace) const {
  const auto thinned = [&](const at::Tensor& x) { return at::dropout(x, config_.dropout, is_training()); };
  input.dropout = is_training() ? config_.attention_dropout : 0;
  const at::Tensor qkv = qkv_->forward(rows).view({rows.size(0), 3, config_.heads, config_.head_dim});
  const at::Tensor q = qkv.select(1, 0), k = qkv.select(1, 1), v = qkv.select(1, 2);
  const at::Tensor attended = attention_output_->forward(mix(q, k, v, input, trace));
  const at::Tensor middle = attention_norm_->forward(thinned(attended) + rows);
  const at::Tensor inner = activate(inner_->forward(middle), config_.activation);
  at::Tensor out = output_norm_->forward(thinned(output_->forward(inner)) + middle);
  if (trace && trace->keep_layers) trace->layers.push_back({q.contiguous(), k.contiguous(), out});  // without v
  return out;
}

void EncoderLayer::add_published(const std::string& prefix, NamedTensors& tensors) const {
  const at::NoGradGuard no_grad;
  int64_t row = 0;
  for (const char* part : {"query", "key", "value"}) {
    for (const auto& entry : qkv_->named_parameters()) {
      tensors.emplace_back(prefix + "attention.self." + part + "." + entry.key(),
                           entry.value().narrow(0, row, config_.width));
    }
    row += config_.width;
  }
  add_linear(prefix + "attention.output.dense", *attention_output_, tensors);
  add_norm(prefix + "attention.output.LayerNorm", *attention_norm_, tensors);
  add_linear(prefix + "intermediate.dense", *inner_, tensors);
  add_linear(prefix + "output.dense", *output_, tensors);
  add_norm(prefix + "output.LayerNorm", *output_norm_, tensors);
}

Encoder::Encoder(const ModelConfig& config) : config_(config) {
  words_ = register_module("words", std::make_shared<Table>(config.vocabulary, config.width));
  positions_ = register_module("positions", std::make_shared<Table>(config.positions, config.width));
  types_ = register_module("types", std::make_shared<Table>(config.types, config.width));
  norm_ = register_module("norm", std::make_shared<LayerNorm>(config.width, config.norm_epsilon));
  for (int64_t l = 0; l < config.layers; ++l) {
    layers_.push_back(register_module("layer" + std::to_string(l), std::make_shared<EncoderLayer>(config)));
  }
}

at::Tensor Encoder::embed(const PackedTexts& texts) const {
  const at::Tensor rows =
      words_->forward(texts.ids()) + types_->forward(texts.types()) + positions_->forward(texts.positions());
  return at::dropout(norm_->forward(rows), config_.dropout, is_training());
}

at::Tensor Encoder::forward(const PackedTexts& texts, const AttentionPlan& plan, Trace* trace) const {
  if (plan.layers.size() != layers_.size()) {
    throw std::invalid_argument("encoder: a plan for " + std::to_string(plan.layers.size()) +
                                " layers; the model has " + std::to_string(layers_.size()));
  }
  at::Tensor rows = embed(texts);
  for (size_t l = 0; l < layers_.size(); ++l) {
    rows = layers_[l]->forward(rows, {.texts = texts, .choice = plan.layers[l]}, trace);
  }
  return rows;
}

NamedTensors Encoder::published_tensors() const {
  NamedTensors tensors = {{"embeddings.word_embeddings.weight", words_->weight()},
                          {"embeddings.position_embeddings.weight", positions_->weight()},
                          {"embeddings.token_type_embeddings.weight", types_->weight()}};
  add_norm("embeddings.LayerNorm", *norm_, tensors);
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l]->add_published("encoder.layer." + std::to_string(l) + ".", tensors);
  }
  return tensors;
}

std::shared_ptr<Encoder> load_encoder(const std::string& folder) {
  const ModelConfig config = ModelConfig::load(folder);
  if (config.is_decoder()) throw io::Error(folder + ": is a decoder; expected an encoder (bert, roberta)");
  const Weights weights(folder);
  weights.check_room(config);
  const auto encoder = std::make_shared<Encoder>(config);
  weights.copy_into(encoder->published_tensors(), kPrefixes, kIgnored);
  encoder->eval();
  return encoder;
}

std::shared_ptr<Encoder> random_encoder(const ModelConfig& config, uint64_t seed) {
  at::manual_seed(seed);
  auto encoder = std::make_shared<Encoder>(config);
  initialize(*encoder, config.initializer_range);
  return encoder;
}

}  // namespace ramify::models
