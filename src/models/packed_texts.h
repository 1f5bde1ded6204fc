// A batch of texts as a network takes it: the tokens of all texts in one row, without padding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/packed_rows.h"
#include "models/text_hierarchy.h"
#include "ramify/attention.h"

namespace ramify::models {

// One text, or a pair of texts, with its special tokens.
struct TokenizedText {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;  // of each id: 0, or 1 in a second text
  TextStructure structure;
  bool was_cut = false;  // it has more tokens than the model takes
};

class PackedTexts {
 public:
  // ids, types [T] int64 of all tokens, on the device. Tokens of every text have the positions `first_position` and so
  // on; behind `max_tokens` they begin anew, which means nothing to a model and is for measuring times only.
  PackedTexts(at::Tensor ids, at::Tensor types, std::vector<TextStructure> texts, int64_t first_position,
              int64_t max_tokens);
  PackedTexts(std::span<const TokenizedText* const> texts, int64_t first_position, int64_t max_tokens,
              at::Device device);

  const at::Tensor& ids() const { return ids_; }              // [T] int64
  const at::Tensor& types() const { return types_; }          // [T] int64
  const at::Tensor& positions() const { return positions_; }  // [T] int64
  const PackedRows& rows() const { return rows_; }
  std::span<const int64_t> begin() const { return rows_.begin(); }
  int64_t num_texts() const { return rows_.num_texts(); }
  int64_t num_tokens() const { return begin().back(); }

  // Made at the first use, then kept for the other layers.
  const ForestTensors& forest(const TextHierarchy& hierarchy) const;

 private:
  at::Tensor ids_, types_, positions_;
  std::vector<TextStructure> structures_;
  PackedRows rows_;
  mutable std::map<std::string, ForestTensors> forests_;
};

}  // namespace ramify::models
