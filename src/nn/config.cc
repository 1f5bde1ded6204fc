// Reading and writing configs as JSON: every key once, in the order in which it is written.
#include "ramify/nn/config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace ramify::nn {
namespace {

using nlohmann::ordered_json;

template <class Value>
using Names = std::initializer_list<std::pair<const char*, Value>>;

constexpr Names<Attention> kAttentions = {{"hierarchical", Attention::hierarchical}, {"none", Attention::none}};
constexpr Names<Tie> kTies = {{"block", Tie::block}, {"none", Tie::none}};
constexpr Names<Frequencies> kFrequencies = {{"fixed", Frequencies::fixed}, {"learned", Frequencies::learned}};
constexpr Names<Keys> kKeys = {{"learned", Keys::learned}, {"tokens", Keys::tokens}};
constexpr Names<Activation> kActivations = {
    {"gelu", Activation::gelu}, {"relu", Activation::relu}, {"none", Activation::none}};

constexpr int64_t kMostWidth = 65536, kMostLayers = 256;

// `word:N` -> N
std::optional<int64_t> number_behind(const std::string& text, std::string_view word) {
  if (!text.starts_with(std::string(word) + ":")) return std::nullopt;
  int64_t number = 0;
  const char *begin = text.data() + word.size() + 1, *end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// An object whose keys are taken one by one; what is left at the end is unknown.
class Reader {
 public:
  Reader(const ordered_json& object, std::string name, std::string path)
      : object_(object), name_(std::move(name)), path_(std::move(path)) {
    if (!object.is_object()) {
      throw std::invalid_argument(name_ + ": " + (path_.empty() ? "the config" : path_.substr(0, path_.size() - 1)) +
                                  " is " + object.dump() + "; expected an object");
    }
  }

  const ordered_json* take(const std::string& key) {
    known_.push_back(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  [[noreturn]] void reject(const std::string& key, const std::string& expected) const {
    throw std::invalid_argument(name_ + ": " + path_ + key + " is " + object_.at(key).dump() + "; expected " +
                                expected);
  }

  void whole(const std::string& key, int64_t least, int64_t most, int64_t& out) {
    const ordered_json* value = take(key);
    if (!value) return;
    const bool fits =
        value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
    if (!fits || value->get<int64_t>() < least || value->get<int64_t>() > most) {
      reject(key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    out = value->get<int64_t>();
  }

  void share(const std::string& key, double& out) {
    const ordered_json* value = take(key);
    if (!value) return;
    if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() < 1)) {
      reject(key, "a number from 0 to 1, without 1");
    }
    out = value->get<double>();
  }

  void boolean(const std::string& key, bool& out) {
    const ordered_json* value = take(key);
    if (!value) return;
    if (!value->is_boolean()) reject(key, "true or false");
    out = value->get<bool>();
  }

  // Empty if the key is not there or no text.
  std::string text(const std::string& key) {
    const ordered_json* value = take(key);
    return value && value->is_string() ? value->get<std::string>() : "";
  }

  template <class Value>
  void choice(const std::string& key, const Names<Value>& names, Value& out) {
    const std::string name = text(key);
    std::string all;
    for (const auto& [known, value] : names) {
      if (name == known) {
        out = value;
        return;
      }
      all += (all.empty() ? "" : ", ") + std::string(known);
    }
    if (object_.contains(key)) reject(key, "one of " + all);
  }

  bool has(const std::string& key) const { return object_.contains(key); }
  const std::string& name() const { return name_; }

  void finish() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(known_, key) != known_.end()) continue;
      std::string all;
      for (const std::string& known : known_) all += (all.empty() ? "" : ", ") + known;
      throw std::invalid_argument(name_ + ": " + path_ + key + " is not a key; expected one of " + all);
    }
  }

 private:
  const ordered_json& object_;
  std::string name_, path_;
  std::vector<std::string> known_;
};

void read_alpha(Reader& reader, LayerConfig& layer) {
  const ordered_json* value = reader.take("alpha");
  if (!value) return;
  if (*value == "learned") {
    layer.alpha.reset();
  } else if (value->is_number() && value->get<double>() >= 1 && value->get<double>() <= 2) {
    layer.alpha = value->get<double>();
  } else {
    reader.reject("alpha", "a number from 1 to 2, or \"learned\"");
  }
}

void read_inner(Reader& reader, LayerConfig& layer) {
  const std::string inner = reader.text("inner");
  if (!reader.has("inner")) return;
  const int64_t features = inner == "exact" ? 0 : number_behind(inner, "favor").value_or(-1);
  if (features < 0 || features > kMostWidth || inner == "favor:0") reader.reject("inner", "\"exact\" or \"favor:N\"");
  layer.favor_features = features;
  if (features > 0 && layer.alpha != 1.0) reader.reject("inner", "\"exact\" where alpha is not 1");
}

void read_pooling(Reader& reader, LocalPooling& pooling) {
  const std::string text = reader.text("pooling");
  if (!reader.has("pooling")) return;
  const int64_t group = number_behind(text, "merge").value_or(0);
  if (text == "none") {
    pooling = {};
  } else if (text == "collapse") {
    pooling = {LocalPooling::Kind::collapse, 0};
  } else if (group >= 2) {
    pooling = {LocalPooling::Kind::merge, group};
  } else {
    reader.reject("pooling", "\"none\", \"collapse\" or \"merge:N\" with N of at least 2");
  }
}

LayerConfig read_layer(Reader reader) {
  LayerConfig layer;
  reader.whole("heads", 1, 1024, layer.heads);
  reader.whole("head_dim", 1, kMostWidth, layer.head_dim);
  reader.whole("width", 1, kMostWidth, layer.width);
  reader.whole("position_head_dim", 0, kMostWidth, layer.position_head_dim);
  reader.choice("attention", kAttentions, layer.attention);
  reader.choice("tie", kTies, layer.tie);
  reader.boolean("include_self", layer.include_self);
  read_alpha(reader, layer);
  read_inner(reader, layer);
  reader.boolean("normalize_values", layer.normalize_values);
  read_pooling(reader, layer.pooling);
  reader.finish();
  return layer;
}

void read_layers(Reader& reader, std::vector<LayerConfig>& layers) {
  const ordered_json* value = reader.take("layers");
  if (!value) return;
  if (!value->is_array() || value->empty() || value->size() > kMostLayers) {
    reader.reject("layers", "a list of 1 to " + std::to_string(kMostLayers) + " layers");
  }
  layers.clear();
  for (size_t l = 0; l < value->size(); ++l) {
    layers.push_back(read_layer(Reader((*value)[l], reader.name(), "layers[" + std::to_string(l) + "].")));
  }
}

void read_global_pooling(Reader& reader, std::optional<int64_t>& leaf) {
  const std::string text = reader.text("pooling");
  if (!reader.has("pooling")) return;
  leaf = number_behind(text, "leaf");
  if (text != "mean" && !leaf) reader.reject("pooling", "\"mean\" or \"leaf:N\"");
}

template <class Value>
const char* name_of(const Names<Value>& names, Value value) {
  return std::ranges::find(names, value, [](const auto& entry) { return entry.second; })->first;
}

std::string text_of(const LocalPooling& pooling) {
  return pooling.kind == LocalPooling::Kind::none       ? "none"
         : pooling.kind == LocalPooling::Kind::collapse ? "collapse"
                                                        : "merge:" + std::to_string(pooling.group);
}

ordered_json json_of(const LayerConfig& layer) {
  return {{"heads", layer.heads},
          {"head_dim", layer.head_dim},
          {"width", layer.width},
          {"position_head_dim", layer.position_head_dim},
          {"attention", name_of(kAttentions, layer.attention)},
          {"tie", name_of(kTies, layer.tie)},
          {"include_self", layer.include_self},
          {"alpha", layer.alpha ? ordered_json(*layer.alpha) : ordered_json("learned")},
          {"inner", layer.favor_features == 0 ? "exact" : "favor:" + std::to_string(layer.favor_features)},
          {"normalize_values", layer.normalize_values},
          {"pooling", text_of(layer.pooling)}};
}

}  // namespace

EncoderConfig EncoderConfig::from_json(std::string_view text, std::string_view name) {
  ordered_json json;
  try {
    json = ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw std::invalid_argument(std::string(name) + ": not JSON: " + error.what());
  }
  EncoderConfig config;
  Reader reader(json, std::string(name), "");
  reader.whole("token_width", 1, kMostWidth, config.token_width);
  reader.whole("position_width", 2, kMostWidth, config.position_width);
  if (config.position_width % 2 != 0) reader.reject("position_width", "an even number: half cosines, half sines");
  reader.boolean("positions", config.positions);
  reader.choice("fourier", kFrequencies, config.fourier);
  reader.choice("keys", kKeys, config.keys);
  read_layers(reader, config.layers);
  read_global_pooling(reader, config.pooling_leaf);
  reader.whole("mlp_width", 0, kMostWidth, config.mlp_width);
  reader.choice("activation", kActivations, config.activation);
  reader.share("dropout", config.dropout);
  reader.share("token_dropout", config.token_dropout);
  reader.finish();
  return config;
}

std::string EncoderConfig::to_json() const {
  ordered_json all = {{"token_width", token_width},
                      {"position_width", position_width},
                      {"positions", positions},
                      {"fourier", name_of(kFrequencies, fourier)},
                      {"keys", name_of(kKeys, keys)},
                      {"layers", ordered_json::array()},
                      {"pooling", pooling_leaf ? "leaf:" + std::to_string(*pooling_leaf) : "mean"},
                      {"mlp_width", mlp_width},
                      {"activation", name_of(kActivations, activation)},
                      {"dropout", dropout},
                      {"token_dropout", token_dropout}};
  for (const LayerConfig& layer : layers) all["layers"].push_back(json_of(layer));
  return all.dump(2);
}

void EncoderConfig::set_attention(Attention attention) {
  for (LayerConfig& layer : layers) layer.attention = attention;
}

}  // namespace ramify::nn
