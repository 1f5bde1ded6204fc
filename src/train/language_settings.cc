#include "train/language_settings.h"

#include <algorithm>
#include <stdexcept>

#include "io/atomic_file.h"
#include "io/error.h"
#include "train/json_members.h"
#include "train/settings.h"

namespace ramify::train {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;  // of a sequence, and of anything that is a size

template <class Data, class Visit>
void visit_texts(Data& data, const Visit& visit) {
  visit("train", data.train);
  visit("valid", data.valid);
  visit("test", data.test);
  visit("valid_fraction", data.valid_fraction);
  visit("tokenizer", data.tokenizer);
  visit("field", data.field);
  visit("context", data.context);
  visit("limit", data.limit);
}

template <class Attention, class Visit>
void visit_attention(Attention& attention, const Visit& visit) {
  visit("kind", attention.kind);
  visit("hierarchy", attention.hierarchy);
  visit("tie", attention.tie);
  visit("window", attention.window);
}

template <class Model, class Visit>
void visit_size(Model& model, const Visit& visit) {
  visit("layers", model.layers);
  visit("width", model.width);
  visit("heads", model.heads);
  visit("key_heads", model.key_heads);
  visit("inner_width", model.inner_width);
  visit("rope_theta", model.rope_theta);
}

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

void check_range(const char* flag, int64_t value, int64_t least, int64_t most) {
  require(value >= least && value <= most, std::string(flag) + " is " + std::to_string(value) + "; expected " +
                                               std::to_string(least) + " to " + std::to_string(most));
}

void check_size(const LanguageModelSize& model) {
  check_range("--layers", model.layers, 1, 1024);
  check_range("--width", model.width, 2, 1 << 20);
  check_range("--heads", model.heads, 1, model.width);
  check_range("--key-heads", model.key_heads, 0, model.heads);
  check_range("--inner-width", model.inner_width, 0, 1 << 20);
  require(model.rope_theta >= 1 && model.rope_theta <= 1e12, "rope_theta is out of its range, 1 to 1e12");
  const std::string width = std::to_string(model.width), heads = std::to_string(model.heads);
  require(model.width % model.heads == 0, "--heads " + heads + " does not divide --width " + width);
  require(model.width / model.heads % 2 == 0, "--width " + width + " and --heads " + heads + ": a head would have " +
                                                  std::to_string(model.width / model.heads) +
                                                  " values; rotated positions need an even number");
  require(model.key_heads == 0 || model.heads % model.key_heads == 0,
          "--key-heads " + std::to_string(model.key_heads) + " does not divide --heads " + heads);
}

void check_attention(const LanguageAttention& attention) {
  require(attention.kind == "exact" || attention.kind == "hierarchical",
          "attention is " + attention.kind + "; expected exact or hierarchical");
  check_range("--window", attention.window, 0, kMostTokens);
  const auto choice = attention.choice();
  if (!choice) return;
  require(!choice->hierarchy.follows_text(),
          "--hierarchy " + attention.hierarchy + ": running text is cut anywhere; expected windows, such as 16*");
  require(choice->window == 0 || choice->tie == Tie::none, "--window is for --tie none only");
}

}  // namespace

std::optional<models::HierarchicalAttention> LanguageAttention::choice() const {
  if (kind == "exact") return std::nullopt;
  return models::HierarchicalAttention{.hierarchy = models::TextHierarchy::parse(hierarchy),
                                       .tie = models::parse_tie(tie),
                                       .include_self = true,
                                       .window = window};
}

LanguageSettings::LanguageSettings() {
  training.batch_leaves = 8192;
  training.log_every = 20;
}

LanguageSettings LanguageSettings::from_json(const nlohmann::json& json) {
  LanguageSettings settings;
  for (const auto& [key, value] : json.items()) {
    if (key == "data") {
      read_members(key, value, [&](const auto& visit) { visit_texts(settings.data, visit); });
    } else if (key == "attention") {
      read_members(key, value, [&](const auto& visit) { visit_attention(settings.attention, visit); });
    } else if (key == "model") {
      read_members(key, value, [&](const auto& visit) { visit_size(settings.model, visit); });
    } else if (key == "training") {
      nlohmann::json training = settings.training.to_json();
      training.update(value);
      settings.training = TrainingOptions::from_json(training);
    } else {
      throw std::invalid_argument("settings: there is no part " + key + "; expected data, attention, model, training");
    }
  }
  check_range("--context", settings.data.context, 2, kMostTokens);
  require(settings.data.limit >= 0, "--limit is negative; expected a number of tokens, or 0 for all");
  require(settings.data.valid_fraction >= 0 && settings.data.valid_fraction < 1,
          "--valid-fraction must be at least 0 and less than 1");
  require(settings.training.label_smoothing == 0, "training: label_smoothing is not for language models");
  check_size(settings.model);
  check_attention(settings.attention);
  return settings;
}

nlohmann::json LanguageSettings::to_json() const {
  return {{"data", written_members([&](const auto& visit) { visit_texts(data, visit); })},
          {"attention", written_members([&](const auto& visit) { visit_attention(attention, visit); })},
          {"model", written_members([&](const auto& visit) { visit_size(model, visit); })},
          {"training", training.to_json()}};
}

void LanguageSettings::make_paths_absolute() {
  for (auto* list : {&data.train, &data.valid, &data.test}) {
    for (std::string& path : *list) path = absolute_path(path);
  }
  data.tokenizer = absolute_path(data.tokenizer);
}

models::ModelConfig LanguageSettings::model_config(int64_t vocabulary) const {
  models::ModelConfig config;
  config.family = models::Family::llama;
  config.vocabulary = vocabulary;
  config.width = model.width;
  config.layers = model.layers;
  config.heads = model.heads;
  config.kv_heads = model.key_heads > 0 ? model.key_heads : model.heads;
  config.head_dim = model.width / model.heads;
  config.inner_width = model.inner_width > 0 ? model.inner_width : (8 * model.width / 3 + 15) / 16 * 16;
  config.positions = data.context;
  config.norm_epsilon = 1e-5;
  config.activation = models::Activation::silu;
  config.rope_theta = model.rope_theta;
  config.tied_output = true;
  return config;
}

models::AttentionPlan LanguageSettings::plan() const {
  models::AttentionPlan plan = models::AttentionPlan::exact(model.layers);
  std::ranges::fill(plan.layers, attention.choice());
  return plan;
}

nlohmann::json read_language_config(const std::string& file) {
  nlohmann::json config = nlohmann::json::parse(io::read_file(file, 1 << 20), nullptr, false);
  if (!config.is_object()) throw io::Error(file + ": not a JSON object");
  for (const auto& [key, value] : config.items()) {
    if (key != "attention" && key != "model" && key != "training") {
      throw io::Error(file + ": there is no part " + key + "; expected attention, model and training");
    }
  }
  return config;
}

}  // namespace ramify::train
