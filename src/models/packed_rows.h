// Which of the rows of a batch are whose: text i has the rows begin[i], ..., begin[i + 1] - 1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ramify::models {

// The same rows with all texts as long as the longest.
struct PaddedRows {
  at::Tensor place;     // [rows] int64: where each row lies
  at::Tensor is_token;  // [texts, 1, 1, longest] bool
};

class PackedRows {
 public:
  explicit PackedRows(std::vector<int64_t> begin) : begin_(std::move(begin)) {}

  std::span<const int64_t> begin() const { return begin_; }
  int64_t num_texts() const { return static_cast<int64_t>(begin_.size()) - 1; }
  bool have_one_length() const;

  // Made at the first use, then kept for the other layers.
  const PaddedRows& padded(at::Device device) const;

 private:
  std::vector<int64_t> begin_;
  mutable std::optional<PaddedRows> padded_;
};

}  // namespace ramify::models
