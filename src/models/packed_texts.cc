#include "models/packed_texts.h"

#include <ATen/ops/empty.h>

namespace ramify::models {
namespace {

at::Tensor packed(std::span<const TokenizedText* const> texts, std::vector<int32_t> TokenizedText::*values) {
  int64_t count = 0;
  for (const TokenizedText* text : texts) count += static_cast<int64_t>((text->*values).size());
  at::Tensor all = at::empty({count}, at::dtype(at::kLong));
  auto* next = all.mutable_data_ptr<int64_t>();
  for (const TokenizedText* text : texts) next = std::copy((text->*values).begin(), (text->*values).end(), next);
  return all;
}

std::vector<TextStructure> structures_of(std::span<const TokenizedText* const> texts) {
  std::vector<TextStructure> structures;
  for (const TokenizedText* text : texts) structures.push_back(text->structure);
  return structures;
}

std::vector<int64_t> begin_of(std::span<const TextStructure> texts) {
  std::vector<int64_t> begin = {0};
  for (const TextStructure& text : texts) begin.push_back(begin.back() + text.tokens);
  return begin;
}

}  // namespace

PackedTexts::PackedTexts(at::Tensor ids, at::Tensor types, std::vector<TextStructure> texts, int64_t first_position,
                         int64_t max_tokens)
    : ids_(std::move(ids)), types_(std::move(types)), structures_(std::move(texts)), rows_(begin_of(structures_)) {
  at::Tensor positions = at::empty({num_tokens()}, at::dtype(at::kLong));
  auto* next = positions.mutable_data_ptr<int64_t>();
  for (const TextStructure& text : structures_) {
    for (int64_t i = 0; i < text.tokens; ++i) *next++ = first_position + i % max_tokens;
  }
  positions_ = positions.to(ids_.device());
}

PackedTexts::PackedTexts(std::span<const TokenizedText* const> texts, int64_t first_position, int64_t max_tokens,
                         at::Device device)
    : PackedTexts(packed(texts, &TokenizedText::ids).to(device), packed(texts, &TokenizedText::types).to(device),
                  structures_of(texts), first_position, max_tokens) {}

const ForestTensors& PackedTexts::forest(const TextHierarchy& hierarchy) const {
  const std::string name = hierarchy.text();
  const auto found = forests_.find(name);
  if (found != forests_.end()) return found->second;
  return forests_.emplace(name, ForestTensors(hierarchy.build(structures_), ids_.device())).first->second;
}

}  // namespace ramify::models
