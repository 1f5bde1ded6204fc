// One tree of a batch as text, from the batch's arrays alone: so that a record can be compared alone and in company.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "signal/batch.h"

namespace ramify::testing {

class BatchText {
 public:
  explicit BatchText(const signal::Batch& batch) : batch_(batch), leaves_(static_cast<size_t>(batch.num_leaves())) {
    for (size_t m = 0; m < batch.leaves.size(); ++m) {
      const signal::LeafRows& rows = batch.leaves[m];
      for (size_t r = 0; r < rows.leaf.size(); ++r) {
        std::string text = fmt::format("{}", m);
        if (!rows.id.empty()) text += fmt::format("#{}", rows.id[r]);
        for (int64_t i = 0; i < rows.width; ++i) {
          text += fmt::format(",{}", rows.value[r * static_cast<size_t>(rows.width) + static_cast<size_t>(i)]);
        }
        leaves_[static_cast<size_t>(rows.leaf[r])] += text;
      }
    }
  }

  std::string tree(int64_t tree) const {
    const int64_t root = batch_.forest.tree_begin()[tree];
    std::string text = node(root);
    const int64_t first = batch_.forest.tree_leaf_begin()[tree], last = batch_.forest.tree_leaf_begin()[tree + 1];
    const signal::Targets& targets = batch_.targets;
    for (size_t r = 0; r < targets.leaf_begin.size(); ++r) {
      if (targets.leaf_begin[r] < first || targets.leaf_begin[r] >= last) continue;
      text += fmt::format(" [{},{})", targets.leaf_begin[r] - first, targets.leaf_end[r] - first);
      if (!targets.classes.empty()) text += fmt::format("={}", targets.classes[r]);
      const size_t width = targets.values.size() / targets.leaf_begin.size();
      for (size_t i = 0; i < width; ++i) text += fmt::format(",{}", targets.values[r * width + i]);
    }
    return text;
  }

 private:
  std::string node(int64_t n) const {  // recursion over small test cases only
    std::string text = position(batch_.positions.index[static_cast<size_t>(n)]);
    if (batch_.forest.is_leaf(n)) return text + leaves_[static_cast<size_t>(batch_.forest.first_leaf()[n])];
    text += "(";
    for (int64_t c = batch_.forest.first_child()[n]; c < batch_.forest.first_child()[n + 1]; ++c) text += " " + node(c);
    return text + ")";
  }

  std::string position(int64_t row) const {
    const signal::Positions& positions = batch_.positions;
    const auto keys = static_cast<int64_t>(positions.keys.size()),
               places = static_cast<int64_t>(positions.places.size());
    const auto cells = static_cast<int64_t>(positions.cells.size() / 2);
    if (row < 0) return "";
    if (row < keys) {
      std::string text = fmt::format("k{}", positions.keys[static_cast<size_t>(row)]);
      for (int64_t t = positions.key_token_begin[static_cast<size_t>(row)];
           t < positions.key_token_begin[static_cast<size_t>(row) + 1]; ++t) {
        text += fmt::format("/{}", positions.key_tokens[static_cast<size_t>(t)]);
      }
      return text + ":";
    }
    row -= keys;
    if (row < places) return fmt::format("{}:", positions.places[static_cast<size_t>(row)]);
    row -= places;
    if (row < cells) {
      const auto at = static_cast<size_t>(2 * row);
      return fmt::format("@{},{}:", positions.cells[at], positions.cells[at + 1]);
    }
    row -= cells;
    std::string text = "~";
    const size_t k = graph_features;
    for (size_t i = 0; i < k; ++i) text += fmt::format("{} ", positions.graph.at(static_cast<size_t>(row) * k + i));
    return text + ":";
  }

  const signal::Batch& batch_;
  std::vector<std::string> leaves_;

 public:
  size_t graph_features = 8;
};

}  // namespace ramify::testing
