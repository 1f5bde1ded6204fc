#include "train/settings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "io/atomic_file.h"
#include "io/error.h"
#include "train/json_members.h"
#include "train/named_configs.h"

namespace ramify::train {
namespace {

constexpr std::array<std::pair<std::string_view, Mixing>, 4> kMixings = {
    {{"hierarchical", Mixing::hierarchical}, {"flat", Mixing::flat}, {"none", Mixing::none}, {"exact", Mixing::exact}}};

// exact is for architectures, flat and none for the encoder of nested data.
void check_attention(const Settings& settings) {
  const Mixing attention = settings.attention;
  if (settings.architecture.is_used() && attention != Mixing::exact && attention != Mixing::hierarchical) {
    throw std::invalid_argument("--attention " + std::string(name_of(attention)) +
                                " is not for --architecture; expected exact or hierarchical");
  }
  if (!settings.architecture.is_used() && attention == Mixing::exact) {
    throw std::invalid_argument("--attention exact is for --architecture; expected hierarchical, flat or none");
  }
}

// visit(key, member) for every setting of the data: the list that reading and writing share.
template <class Data, class Visit>
void visit_data(Data& data, const Visit& visit) {
  visit("train", data.train);
  visit("valid", data.valid);
  visit("test", data.test);
  visit("valid_fraction", data.valid_fraction);
  visit("word_vectors", data.word_vectors);
  visit("train_vectors", data.train_vectors);
  visit("leaf_encoder", data.leaf_encoder);
  visit("leaf_level", data.leaf_level);
  signal::SchemaSettings::visit(data, visit);
}

}  // namespace

Mixing mixing_of(std::string_view name) {
  for (const auto& [text, mixing] : kMixings) {
    if (text == name) return mixing;
  }
  throw std::invalid_argument("attention is " + std::string(name) + "; expected hierarchical, flat, none or exact");
}

std::string_view name_of(Mixing mixing) {
  return kMixings[static_cast<size_t>(mixing)].first;
}

// Without mixing the hierarchy is of no use but for pooling, which both give alike.
signal::Structure structure_of(Mixing mixing) {
  return mixing == Mixing::flat ? signal::Structure::flat : signal::Structure::hierarchical;
}

std::string absolute_path(const std::string& path) {
  if (path.empty() || path == "-") return path;
  std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  if (absolute.size() > 1 && absolute.ends_with('/')) absolute.pop_back();
  return absolute;
}

void Settings::make_paths_absolute() {
  const auto absolute = [](std::string& path) { path = absolute_path(path); };
  for (auto* list : {&data.train, &data.valid, &data.test}) std::ranges::for_each(*list, absolute);
  for (auto* path : {&data.schema, &data.images, &data.tokenizer, &data.word_vectors, &data.leaf_encoder})
    absolute(*path);
  if (architecture.is_folder()) absolute(architecture.name);
}

void DataSettings::settle_leaves() {
  const auto require = [](bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
  };
  if (leaf_encoder.empty()) {
    require(leaf_level.empty(), "--leaf-level: without --leaf-encoder there is no model that leaves could come from");
    return;
  }
  require(word_vectors.empty(),
          "--leaf-encoder and --word-vectors: the vectors of texts can come from one of them only");
  require(tokenizer.empty(), "--leaf-encoder and --tokenizer: the encoder has a tokenizer of its own");
  if (leaf_level.empty()) leaf_level = name_of(signal::LeafLevel::sentence);
  const bool is_table = signal::leaf_level_of(leaf_level) == signal::LeafLevel::table;
  require(is_table || !train_vectors, "--train-vectors: only the vectors of --leaf-level table can learn");
}

Settings Settings::from_json(const nlohmann::json& json) {
  Settings settings;
  for (const auto& [key, value] : json.items()) {
    if (key == "data") {
      read_members(key, value, [&](const auto& visit) { visit_data(settings.data, visit); });
    } else if (key == "attention") {
      settings.attention = mixing_of(value.is_string() ? value.get<std::string>() : value.dump());
    } else if (key == "model") {
      settings.model = nn::EncoderConfig::from_json(value.dump(), "model");
    } else if (key == "architecture") {
      settings.architecture = Architecture::from_json(value);
    } else if (key == "training") {
      settings.training = TrainingOptions::from_json(value);
    } else {
      throw std::invalid_argument("settings: there is no part " + key + "; expected data, attention, model, " +
                                  "architecture, training");
    }
  }
  check_attention(settings);
  if (settings.attention == Mixing::none) settings.model.set_attention(nn::Attention::none);
  return settings;
}

nlohmann::json Settings::to_json() const {
  return {{"data", written_members([&](const auto& visit) { visit_data(data, visit); })},
          {"attention", name_of(attention)},
          {"model", nlohmann::json::parse(model.to_json())},
          {"architecture", architecture.is_used() ? architecture.to_json() : nlohmann::json::object()},
          {"training", training.to_json()}};
}

nlohmann::json read_config(const std::string& name_or_file) {
  for (const NamedConfig& config : kNamedConfigs) {
    if (config.name == name_or_file) return nlohmann::json::parse(config.json);
  }
  if (!std::filesystem::exists(name_or_file)) {
    std::string names;
    for (const std::string& name : config_names()) names += (names.empty() ? "" : ", ") + name;
    throw std::invalid_argument("there is no config " + name_or_file + "; expected a file, or one of " + names);
  }
  nlohmann::json config = nlohmann::json::parse(io::read_file(name_or_file, 1 << 20), nullptr, false);
  if (!config.is_object()) throw io::Error(name_or_file + ": not a JSON object");
  for (const auto& [key, value] : config.items()) {
    if (key != "model" && key != "training") {
      throw io::Error(name_or_file + ": there is no part " + key + "; expected model and training");
    }
  }
  return config;
}

std::vector<std::string> config_names() {
  std::vector<std::string> names;
  for (const NamedConfig& config : kNamedConfigs) names.emplace_back(config.name);
  return names;
}

}  // namespace ramify::train
