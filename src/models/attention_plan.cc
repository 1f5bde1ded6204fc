#include "models/attention_plan.h"

#include <charconv>
#include <set>
#include <stdexcept>

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

Tie parse_tie(std::string_view text) {
  if (text == "block") return Tie::block;
  if (text == "none") return Tie::none;
  throw std::invalid_argument("tie: '" + std::string(text) + "' is not known; expected block or none");
}

std::string_view name_of(Tie tie) {
  return tie == Tie::block ? "block" : "none";
}

}  // namespace ramify::models
