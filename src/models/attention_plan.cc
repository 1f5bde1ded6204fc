#include "models/attention_plan.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "models/config.h"
#include "text/json_files.h"

namespace ramify::models {
namespace {

[[noreturn]] void fail_layers(std::string_view text) {
  throw std::invalid_argument("layers: '" + std::string(text) +
                              "' is no list of layers; expected numbers from 0 (7,9,11), ranges (4-11) or all");
}

int64_t parse_layer(std::string_view word, std::string_view text) {
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layer);
  if (error != std::errc() || end != word.data() + word.size() || layer < 0) fail_layers(text);
  return layer;
}

void check_layer(int64_t layer, int64_t num_layers) {
  if (layer >= 0 && layer < num_layers) return;
  throw std::invalid_argument("layers: there is no layer " + std::to_string(layer) + "; the model has 0 to " +
                              std::to_string(num_layers - 1));
}

}  // namespace

AttentionPlan AttentionPlan::exact(int64_t num_layers) {
  return {.layers = std::vector<std::optional<HierarchicalAttention>>(static_cast<size_t>(num_layers))};
}

AttentionPlan AttentionPlan::swapped(int64_t num_layers, const HierarchicalAttention& attention,
                                     const std::vector<int64_t>& layers) {
  AttentionPlan plan = exact(num_layers);
  for (const int64_t layer : layers) {
    check_layer(layer, num_layers);
    plan.layers[static_cast<size_t>(layer)] = attention;
  }
  return plan;
}

std::vector<int64_t> AttentionPlan::swapped_layers() const {
  std::vector<int64_t> swapped;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l]) swapped.push_back(static_cast<int64_t>(l));
  }
  return swapped;
}

std::vector<int64_t> parse_layers(std::string_view text, int64_t num_layers) {
  std::set<int64_t> layers;
  if (text == "all") {
    for (int64_t l = 0; l < num_layers; ++l) layers.insert(l);
    return {layers.begin(), layers.end()};
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const size_t dash = word.find('-');
    const int64_t first = parse_layer(word.substr(0, dash), text);
    const int64_t last = dash == word.npos ? first : parse_layer(word.substr(dash + 1), text);
    if (last < first) fail_layers(text);
    check_layer(last, num_layers);
    for (int64_t l = first; l <= last; ++l) layers.insert(l);
    begin = end + 1;
  }
  return {layers.begin(), layers.end()};
}

std::string layers_text(const std::vector<int64_t>& layers, int64_t num_layers) {
  if (static_cast<int64_t>(layers.size()) == num_layers) return "all";
  std::string text;
  for (const int64_t layer : layers) text += (text.empty() ? "" : ",") + std::to_string(layer);
  return text;
}

nlohmann::json attention_note(const std::optional<HierarchicalAttention>& attention) {
  if (!attention) return {{"attention", "exact"}};
  return {{"attention", "hierarchical"},
          {"hierarchy", attention->hierarchy.text()},
          {"tie", name_of(attention->tie)},
          {"window", attention->window}};
}

AttentionPlan trained_plan(const std::string& folder) {
  const std::string file = folder + "/config.json";
  const nlohmann::json config = text::read_json_file(file);
  const int64_t num_layers = ModelConfig::from_json(config, file).layers;
  const auto found = config.find("ramify");
  if (found == config.end()) return AttentionPlan::exact(num_layers);
  try {
    const nlohmann::json& note = *found;
    const std::string kind = note.at("attention");
    if (kind == "exact") return AttentionPlan::exact(num_layers);
    if (kind != "hierarchical") throw std::invalid_argument("attention is '" + kind + "'");
    const HierarchicalAttention attention{.hierarchy = TextHierarchy::parse(note.at("hierarchy").get<std::string>()),
                                          .tie = parse_tie(note.at("tie").get<std::string>()),
                                          .window = note.value("window", int64_t{0})};
    return AttentionPlan::swapped(num_layers, attention, parse_layers("all", num_layers));
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(file + ": \"ramify\" is no note of an attention: " + io::json_reason(error.what()));
  } catch (const std::invalid_argument& error) {
    throw io::Error(file + ": \"ramify\" is no note of an attention: " + io::printable(error.what()));
  }
}

Tie parse_tie(std::string_view text) {
  if (text == "block") return Tie::block;
  if (text == "none") return Tie::none;
  throw std::invalid_argument("tie: '" + std::string(text) + "' is not known; expected block or none");
}

std::string_view name_of(Tie tie) {
  return tie == Tie::block ? "block" : "none";
}

}  // namespace ramify::models
