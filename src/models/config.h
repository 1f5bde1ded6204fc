// The shape of a published transformer, as its config.json has it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "io/error.h"

namespace ramify::models {

enum class Family {
  bert,
  roberta,  // also XLM-RoBERTa and CamemBERT: the same layout
  llama,
};
std::string_view name_of(Family family);

enum class Activation { gelu, gelu_tanh, relu, silu };

struct ModelConfig {
  Family family = Family::bert;
  int64_t vocabulary = 0;
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // fewer than heads: groups of heads share keys and values
  int64_t head_dim = 0;
  int64_t inner_width = 0;     // of the two-layer part
  int64_t positions = 0;       // rows of the position table; of Llama: how far it was trained
  int64_t first_position = 0;  // of the first token: RoBERTa counts from its padding id + 1
  int64_t types = 0;           // of tokens (first or second text); 0: the model has none
  int64_t padding = 0;
  double norm_epsilon = 1e-12;
  Activation activation = Activation::gelu;
  double dropout = 0, attention_dropout = 0;
  double initializer_range = 0.02;
  // Llama
  double rope_theta = 10000;
  bool tied_output = false;  // the vocabulary's table is also the output layer
  bool attention_bias = false, inner_bias = false;

  // io::Error("NAME: ...") for an architecture that is not known, and for sizes that cannot be.
  static ModelConfig from_json(const nlohmann::json& json, const std::string& name);
  static ModelConfig load(const std::string& folder);  // its config.json
  nlohmann::json to_json() const;                      // as config.json has it

  bool is_decoder() const { return family == Family::llama; }
  int64_t max_tokens() const { return positions - first_position; }  // of a text, special ones included
  double min_values() const;  // how many weights such a model has, small ones left out
  bool operator==(const ModelConfig&) const = default;
};

}  // namespace ramify::models
