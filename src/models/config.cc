#include "models/config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/json_files.h"

namespace ramify::models {
namespace {

using nlohmann::json;

struct KnownType {
  std::string_view type;  // "model_type" of config.json
  Family family;
};
constexpr std::array<KnownType, 5> kTypes = {{{"bert", Family::bert},
                                              {"roberta", Family::roberta},
                                              {"xlm-roberta", Family::roberta},
                                              {"camembert", Family::roberta},
                                              {"llama", Family::llama}}};

constexpr std::array<std::pair<std::string_view, Activation>, 7> kActivations = {
    {{"gelu", Activation::gelu},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"relu", Activation::relu},
     {"silu", Activation::silu},
     {"swish", Activation::silu}}};

// Values of config.json, each checked as it is read.
class ConfigReader {
 public:
  ConfigReader(const json& values, const std::string& name) : values_(values), name_(name) {
    if (!values.is_object()) fail("is no object");
  }

  [[noreturn]] void fail(const std::string& what) const { throw io::Error(name_ + ": " + what); }

  const json* find(const char* key) const {
    const auto found = values_.find(key);
    return found == values_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t size(const char* key, int64_t least, int64_t most) const {
    const json* value = find(key);
    if (!value) fail(std::string(key) + " is missing");
    return checked(key, *value, least, most);
  }
  int64_t size_or(const char* key, int64_t otherwise, int64_t least, int64_t most) const {
    const json* value = find(key);
    return value ? checked(key, *value, least, most) : otherwise;
  }

  double number_or(const char* key, double otherwise, double least, double most) const {
    const json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_number()) fail(std::string(key) + " is no number");
    const auto number = value->get<double>();
    if (number >= least && number <= most) return number;
    fail(std::string(key) + " is " + value->dump() + "; expected " + json(least).dump() + " to " + json(most).dump());
  }

  bool flag(const char* key) const {
    const json* value = find(key);
    if (value && !value->is_boolean()) fail(std::string(key) + " is neither true nor false");
    return value && value->get<bool>();
  }

  std::string text(const char* key, const char* otherwise) const {
    const json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_string()) fail(std::string(key) + " is no string");
    return value->get<std::string>();
  }

 private:
  int64_t checked(const char* key, const json& value, int64_t least, int64_t most) const {
    if (!value.is_number_integer()) fail(std::string(key) + " is no whole number");
    const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(most)
                                                 : value.get<int64_t>() <= most;
    if (fits && value.get<int64_t>() >= least) return value.get<int64_t>();
    fail(std::string(key) + " is " + value.dump() + "; expected " + std::to_string(least) + " to " +
         std::to_string(most));
  }

  const json& values_;
  const std::string& name_;
};

Family family_of(const ConfigReader& reader) {
  const std::string type = reader.text("model_type", "");
  for (const KnownType& known : kTypes) {
    if (known.type == type) return known.family;
  }
  std::string names;
  for (const KnownType& known : kTypes) names += (names.empty() ? "" : ", ") + std::string(known.type);
  reader.fail(type.empty() ? "has no model_type; known are " + names
                           : "the architecture " + io::printable(type) + " is not known; known are " + names);
}

Activation activation_of(const ConfigReader& reader, const char* otherwise) {
  const std::string name = reader.text("hidden_act", otherwise);
  for (const auto& [known, activation] : kActivations) {
    if (known == name) return activation;
  }
  reader.fail("hidden_act " + io::printable(name) + " is not known");
}

std::string_view name_of(Activation activation) {
  for (const auto& [name, known] : kActivations) {
    if (known == activation) return name;
  }
  return "";
}

// Newer files have "rope_parameters", older ones "rope_theta" and "rope_scaling".
void read_rotation(const ConfigReader& reader, const std::string& name, ModelConfig& config) {
  config.rope_theta = reader.number_or("rope_theta", 10000, 1, 1e12);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* found = reader.find(key);
    if (!found) continue;
    const ConfigReader rotation(*found, name);
    const std::string type = rotation.text("rope_type", rotation.text("type", "default").c_str());
    if (type != "default")
      reader.fail(std::string(key) + " has the type " + io::printable(type) + "; expected default");
    config.rope_theta = rotation.number_or("rope_theta", config.rope_theta, 1, 1e12);
  }
}

}  // namespace

std::string_view name_of(Family family) {
  for (const KnownType& known : kTypes) {
    if (known.family == family) return known.type;
  }
  return "";
}

ModelConfig ModelConfig::from_json(const json& values, const std::string& name) {
  constexpr int64_t kMaxSize = int64_t{1} << 20, kMaxVocabulary = int64_t{1} << 24;
  const ConfigReader reader(values, name);
  ModelConfig config;
  config.family = family_of(reader);
  config.vocabulary = reader.size("vocab_size", 1, kMaxVocabulary);
  config.width = reader.size("hidden_size", 1, kMaxSize);
  config.layers = reader.size("num_hidden_layers", 1, 1024);
  config.heads = reader.size("num_attention_heads", 1, config.width);
  config.inner_width = reader.size("intermediate_size", 1, kMaxSize);
  config.positions = reader.size("max_position_embeddings", 1, kMaxVocabulary);
  config.initializer_range = reader.number_or("initializer_range", 0.02, 0, 10);
  config.kv_heads = reader.size_or("num_key_value_heads", config.heads, 1, config.heads);
  config.head_dim = reader.size_or("head_dim", config.width / config.heads, 1, kMaxSize);
  config.attention_dropout = reader.number_or(
      config.is_decoder() ? "attention_dropout" : "attention_probs_dropout_prob", config.is_decoder() ? 0 : 0.1, 0, 1);
  if (config.heads % config.kv_heads != 0) reader.fail("num_key_value_heads does not divide num_attention_heads");
  if (!reader.find("head_dim") && config.width % config.heads != 0) {
    reader.fail("num_attention_heads does not divide hidden_size");
  }
  if (config.is_decoder()) {
    config.activation = activation_of(reader, "silu");
    config.norm_epsilon = reader.number_or("rms_norm_eps", 1e-6, 0, 1);
    config.tied_output = reader.flag("tie_word_embeddings");
    config.attention_bias = reader.flag("attention_bias");
    config.inner_bias = reader.flag("mlp_bias");
    if (config.head_dim % 2 != 0) reader.fail("head_dim is odd; a rotation needs pairs");
    if (reader.number_or("partial_rotary_factor", 1, 0, 1) != 1) reader.fail("partial_rotary_factor is not supported");
    read_rotation(reader, name, config);
    return config;
  }
  if (reader.flag("is_decoder")) reader.fail("is_decoder is set; only encoders of this family are read");
  if (const std::string kind = reader.text("position_embedding_type", "absolute"); kind != "absolute") {
    reader.fail("position_embedding_type " + io::printable(kind) + " is not supported; expected absolute");
  }
  if (config.head_dim * config.heads != config.width) reader.fail("head_dim times heads is not hidden_size");
  if (config.kv_heads != config.heads) reader.fail("num_key_value_heads differs from num_attention_heads");
  const bool roberta = config.family == Family::roberta;
  config.activation = activation_of(reader, "gelu");
  config.norm_epsilon = reader.number_or("layer_norm_eps", 1e-12, 0, 1);
  config.dropout = reader.number_or("hidden_dropout_prob", 0.1, 0, 1);
  config.types = reader.size_or("type_vocab_size", 2, 1, kMaxSize);
  config.padding = reader.size_or("pad_token_id", roberta ? 1 : 0, 0, config.vocabulary - 1);
  config.first_position = roberta ? config.padding + 1 : 0;
  if (config.first_position >= config.positions) reader.fail("max_position_embeddings leaves no room for a token");
  return config;
}

ModelConfig ModelConfig::load(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return from_json(text::read_json_file(path), path);
}

double ModelConfig::min_values() const {
  const auto product = [](int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
  const double attention = product(width, (2 * heads + 2 * kv_heads) * head_dim);
  const double inner = product(width, inner_width) * (is_decoder() ? 3 : 2);
  const double tables = product(width, vocabulary + types + (is_decoder() ? 0 : positions));
  return tables + static_cast<double>(layers) * (attention + inner);
}

json ModelConfig::to_json() const {
  json values = {{"model_type", models::name_of(family)},
                 {"vocab_size", vocabulary},
                 {"hidden_size", width},
                 {"num_hidden_layers", layers},
                 {"num_attention_heads", heads},
                 {"intermediate_size", inner_width},
                 {"max_position_embeddings", positions},
                 {"hidden_act", name_of(activation)},
                 {"initializer_range", initializer_range}};
  if (is_decoder()) {
    values.update({{"num_key_value_heads", kv_heads},
                   {"head_dim", head_dim},
                   {"rms_norm_eps", norm_epsilon},
                   {"attention_dropout", attention_dropout},
                   {"rope_theta", rope_theta},
                   {"tie_word_embeddings", tied_output},
                   {"attention_bias", attention_bias},
                   {"mlp_bias", inner_bias}});
  } else {
    values.update({{"layer_norm_eps", norm_epsilon},
                   {"hidden_dropout_prob", dropout},
                   {"attention_probs_dropout_prob", attention_dropout},
                   {"type_vocab_size", types},
                   {"pad_token_id", padding}});
  }
  return values;
}

}  // namespace ramify::models
