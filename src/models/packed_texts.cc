#include "models/packed_texts.h"

#include <ATen/ops/empty.h>

namespace ramify::models {

PackedTexts::PackedTexts(std::span<const TokenizedText* const> texts, int64_t first_position, int64_t max_tokens,
                         at::Device device) {
  for (const TokenizedText* text : texts) {
    begin_.push_back(begin_.back() + static_cast<int64_t>(text->ids.size()));
    structures_.push_back(text->structure);
  }
  const auto make = [&] { return at::empty({num_tokens()}, at::dtype(at::kLong)); };
  ids_ = make(), types_ = make(), positions_ = make();
  auto *ids = ids_.mutable_data_ptr<int64_t>(), *types = types_.mutable_data_ptr<int64_t>(),
       *positions = positions_.mutable_data_ptr<int64_t>();
  for (const TokenizedText* text : texts) {
    for (size_t i = 0; i < text->ids.size(); ++i) {
      *ids++ = text->ids[i];
      *types++ = text->types[i];
      *positions++ = first_position + static_cast<int64_t>(i) % max_tokens;
    }
  }
  ids_ = ids_.to(device), types_ = types_.to(device), positions_ = positions_.to(device);
}

const ForestTensors& PackedTexts::forest(const TextHierarchy& hierarchy) const {
  const std::string name = hierarchy.text();
  const auto found = forests_.find(name);
  if (found != forests_.end()) return found->second;
  return forests_.emplace(name, ForestTensors(hierarchy.build(structures_), ids_.device())).first->second;
}

}  // namespace ramify::models
