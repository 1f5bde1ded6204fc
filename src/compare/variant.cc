#include "compare/variant.h"

#include <stdexcept>

namespace ramify::compare {

Variant Variant::parse(std::string_view text, int64_t num_layers) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() > 3) {
    throw std::invalid_argument(
        "variant: '" + std::string(text) +
        "' has too many parts; expected HIERARCHY[:LAYERS[:TIE]], such as 2,4,8,16:7,9,11:none");
  }
  Variant variant;
  variant.attention.hierarchy = models::TextHierarchy::parse(parts[0]);
  variant.layers = models::parse_layers(parts.size() > 1 ? parts[1] : "all", num_layers);
  if (parts.size() > 2) variant.attention.tie = models::parse_tie(parts[2]);
  return variant;
}

models::AttentionPlan Variant::plan(int64_t num_layers) const {
  return models::AttentionPlan::swapped(num_layers, attention, layers);
}

std::string Variant::name(int64_t num_layers) const {
  return attention.hierarchy.text() + ":" + models::layers_text(layers, num_layers) + ":" +
         std::string(models::name_of(attention.tie));
}

std::vector<Variant> ablation(int64_t num_layers) {
  std::vector<Variant> variants;
  for (const char* hierarchy : {"2,4,8,16", "2,2,2,2", "7,7,7,7", "8,4,2"}) {
    for (int64_t start = 0; start < num_layers; ++start) {
      Variant variant{.attention = {.hierarchy = models::TextHierarchy::parse(hierarchy)}, .layers = {}};
      variant.start_layer = start;
      for (int64_t layer = start; layer < num_layers; layer += 2) variant.layers.push_back(layer);
      variants.push_back(std::move(variant));
    }
  }
  return variants;
}

}  // namespace ramify::compare
