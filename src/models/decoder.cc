#include "models/decoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "models/weights.h"

namespace ramify::models {
namespace {

constexpr std::array<std::string_view, 1> kDecoderPrefixes = {"model."};
constexpr std::array<std::string_view, 1> kTiedOutput = {"lm_head."};  // the table of words once more

nn::Bias bias_if(bool wanted) {
  return wanted ? nn::Bias::yes : nn::Bias::no;
}

std::shared_ptr<nn::Linear> make_linear(int64_t in, int64_t out, bool bias) {
  return std::make_shared<nn::Linear>(in, out, bias_if(bias), 1 / std::sqrt(static_cast<double>(in)));
}

// The first half of each head is the real part, the second the imaginary one. rows [T, H, d]; cosine, sine [T, d / 2].
at::Tensor rotated(const at::Tensor& rows, const at::Tensor& cosine, const at::Tensor& sine) {
  const int64_t half = rows.size(2) / 2;
  const at::ScalarType exact = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor real = rows.narrow(2, 0, half).to(exact), imaginary = rows.narrow(2, half, half).to(exact);
  const at::Tensor c = cosine.unsqueeze(1), s = sine.unsqueeze(1);
  return at::cat({real * c - imaginary * s, imaginary * c + real * s}, 2).to(rows.scalar_type());
}

// Parts of a fused layer, one below the other, under names of their own.
void add_rows(const std::string& name, const nn::Linear& linear, int64_t first, int64_t count, NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& entry : linear.named_parameters()) {
    tensors.emplace_back(name + "." + entry.key(), entry.value().narrow(0, first, count));
  }
}

void add_rms(const std::string& name, const RmsNorm& norm, NamedTensors& tensors) {
  tensors.emplace_back(name + ".weight", norm.named_parameters()["weight"]);
}

}  // namespace

DecoderLayer::DecoderLayer(const ModelConfig& config) : config_(config) {
  const int64_t all_heads = config.heads * config.head_dim, key_heads = config.kv_heads * config.head_dim;
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<RmsNorm>(config.width, config.norm_epsilon));
  };
  attention_norm_ = norm("attention_norm");
  qkv_ = register_module("qkv", make_linear(config.width, all_heads + 2 * key_heads, config.attention_bias));
  attention_output_ = register_module("attention_output", make_linear(all_heads, config.width, config.attention_bias));
  inner_norm_ = norm("inner_norm");
  gate_up_ = register_module("gate_up", make_linear(config.width, 2 * config.inner_width, config.inner_bias));
  down_ = register_module("down", make_linear(config.inner_width, config.width, config.inner_bias));
}

at::Tensor DecoderLayer::forward(const at::Tensor& rows, const Rotation& rotation, const Attend& attend,
                                 Trace* trace) const {
  const at::Tensor qkv = qkv_->forward(attention_norm_->forward(rows), dtype_)
                             .view({rows.size(0), config_.heads + 2 * config_.kv_heads, config_.head_dim});
  const at::Tensor q = rotated(qkv.narrow(1, 0, config_.heads), rotation.cosine, rotation.sine);
  const at::Tensor k = rotated(qkv.narrow(1, config_.heads, config_.kv_heads), rotation.cosine, rotation.sine);
  const at::Tensor v = qkv.narrow(1, config_.heads + config_.kv_heads, config_.kv_heads);
  const at::Tensor mixed = attend(q, k, v).reshape({rows.size(0), config_.heads * config_.head_dim});
  const at::Tensor middle = rows + attention_output_->forward(mixed, dtype_);
  const at::Tensor inner = gate_up_->forward(inner_norm_->forward(middle), dtype_);
  const at::Tensor gate = inner.narrow(1, 0, config_.inner_width),
                   up = inner.narrow(1, config_.inner_width, config_.inner_width);
  at::Tensor out = middle + down_->forward(activate(gate, config_.activation) * up, dtype_);
  if (trace && trace->keep_layers) trace->layers.push_back({q, k, out});
  return out;
}

void DecoderLayer::shrink_outputs(double factor) {
  const at::NoGradGuard no_grad;
  for (const auto& linear : {attention_output_, down_}) linear->named_parameters()["weight"].mul_(factor);
}

void DecoderLayer::add_published(const std::string& prefix, NamedTensors& tensors) const {
  const int64_t all_heads = config_.heads * config_.head_dim, key_heads = config_.kv_heads * config_.head_dim;
  add_rows(prefix + "self_attn.q_proj", *qkv_, 0, all_heads, tensors);
  add_rows(prefix + "self_attn.k_proj", *qkv_, all_heads, key_heads, tensors);
  add_rows(prefix + "self_attn.v_proj", *qkv_, all_heads + key_heads, key_heads, tensors);
  add_rows(prefix + "self_attn.o_proj", *attention_output_, 0, config_.width, tensors);
  add_rows(prefix + "mlp.gate_proj", *gate_up_, 0, config_.inner_width, tensors);
  add_rows(prefix + "mlp.up_proj", *gate_up_, config_.inner_width, config_.inner_width, tensors);
  add_rows(prefix + "mlp.down_proj", *down_, 0, config_.width, tensors);
  add_rms(prefix + "input_layernorm", *attention_norm_, tensors);
  add_rms(prefix + "post_attention_layernorm", *inner_norm_, tensors);
}

Decoder::Decoder(const ModelConfig& config, Output output) : config_(config), kind_(output) {
  words_ = register_module("words", std::make_shared<Table>(config.vocabulary, config.width));
  for (int64_t l = 0; l < config.layers; ++l) {
    layers_.push_back(register_module("layer" + std::to_string(l), std::make_shared<DecoderLayer>(config)));
  }
  norm_ = register_module("norm", std::make_shared<RmsNorm>(config.width, config.norm_epsilon));
  if (output == Output::own) output_ = register_module("output", make_linear(config.width, config.vocabulary, false));
}

at::Tensor Decoder::run(const at::Tensor& ids, const at::Tensor& positions, const AttendLayer& attend,
                        Trace* trace) const {
  const int64_t half = config_.head_dim / 2;
  const auto floats = at::dtype(at::kFloat).device(ids.device());
  const at::Tensor frequencies = at::pow(config_.rope_theta, -at::arange(half, floats) / half);
  const at::Tensor angles = at::outer(positions.to(at::kFloat), frequencies);
  const DecoderLayer::Rotation rotation = {angles.cos(), angles.sin()};
  at::Tensor rows = words_->forward(ids);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto attend_here = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
      return attend(l, q, k, v);
    };
    rows = layers_[l]->forward(rows, rotation, attend_here, trace);
  }
  return norm_->forward(rows);
}

at::Tensor Decoder::forward(const PackedTexts& texts, const AttentionPlan& plan, Trace* trace) const {
  const AttendLayer attend = [&](size_t l, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const AttentionInput input = {
        .texts = texts, .choice = plan.layers.at(l), .mask = Mask::causal, .dropout = layers_[l]->attention_dropout()};
    return mix(q, k, v, input, trace);
  };
  return run(texts.ids(), texts.positions(), attend, trace);
}

at::Tensor Decoder::extend(const at::Tensor& ids, DecoderCache& cache) const {
  const at::Tensor positions = at::arange(cache.tokens(), cache.tokens() + ids.size(0), ids.options());
  const AttendLayer attend = [&](size_t l, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return cache.layer(l).append(q, k, v);
  };
  at::Tensor rows = run(ids, positions, attend, nullptr);
  cache.add_tokens(ids.size(0));
  return rows;
}

at::Tensor Decoder::read_prompt(const PackedTexts& prompt, const AttentionPlan& plan, DecoderCache& cache) const {
  const AttendLayer attend = [&](size_t l, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    auto* all = dynamic_cast<KeyValueCache*>(&cache.layer(l));
    if (!all || cache.tokens() > 0) throw std::logic_error("decoder: a prompt is read into an empty key-value cache");
    all->store(k, v);
    return mix(q, k, v, {.texts = prompt, .choice = plan.layers.at(l), .mask = Mask::causal}, nullptr);
  };
  at::Tensor rows = run(prompt.ids(), prompt.positions(), attend, nullptr);
  cache.add_tokens(prompt.num_tokens());
  return rows;
}

at::Tensor Decoder::logits(const at::Tensor& rows) const {
  return at::linear(rows, output_weight());
}

const at::Tensor& Decoder::output_weight() const {
  if (kind_ == Output::none) throw std::logic_error("decoder: the model was published without its output layer");
  return output_ ? output_->weight() : words_->weight();
}

void Decoder::set_compute_dtype(at::ScalarType dtype) {
  dtype_ = dtype;
  for (const auto& layer : layers_) layer->set_compute_dtype(dtype);
}

void Decoder::initialize_for_training() {
  initialize(*this, config_.initializer_range);
  for (const auto& layer : layers_) layer->shrink_outputs(1 / std::sqrt(2.0 * static_cast<double>(config_.layers)));
}

NamedTensors Decoder::published_tensors() const {
  NamedTensors tensors = {{"embed_tokens.weight", words_->weight()}};
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l]->add_published("layers." + std::to_string(l) + ".", tensors);
  }
  add_rms("norm", *norm_, tensors);
  if (output_) add_rows("lm_head", *output_, 0, config_.vocabulary, tensors);
  return tensors;
}

std::shared_ptr<Decoder> load_decoder(const std::string& folder) {
  const ModelConfig config = ModelConfig::load(folder);
  if (!config.is_decoder()) throw io::Error(folder + ": is an encoder; expected a decoder (llama)");
  const Weights weights(folder);
  weights.check_room(config);
  const bool has_output = weights.contains("lm_head.weight");
  const auto output = config.tied_output ? Decoder::Output::tied
                      : has_output       ? Decoder::Output::own
                                         : Decoder::Output::none;
  const auto decoder = std::make_shared<Decoder>(config, output);
  const std::span<const std::string_view> all(kTiedOutput);
  weights.copy_into(decoder->published_tensors(), kDecoderPrefixes, all.first(config.tied_output ? 1 : 0));
  decoder->eval();
  return decoder;
}

void save_decoder(const Decoder& decoder, const std::string& file) {
  NamedTensors tensors = decoder.published_tensors();
  for (auto& [name, tensor] : tensors) {
    if (!name.starts_with("lm_head.")) name = std::string(kDecoderPrefixes[0]) + name;
  }
  save_tensors(file, tensors, {{"format", "pt"}});  // which transformers asks for
}

}  // namespace ramify::models
