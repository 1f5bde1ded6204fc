// Which attention each layer of a model has: the exact one it was trained with, or a hierarchical one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text_hierarchy.h"
#include "ramify/options.h"

namespace ramify::models {

struct HierarchicalAttention {
  TextHierarchy hierarchy;  // without levels: the window alone
  Tie tie = Tie::block;
  bool include_self = true;  // as exact attention has it
  int64_t window = 0;        // tokens on either side that are seen one by one; untied only
  bool operator==(const HierarchicalAttention&) const = default;
};

struct AttentionPlan {
  std::vector<std::optional<HierarchicalAttention>> layers;  // none: exact

  static AttentionPlan exact(int64_t num_layers);
  // std::invalid_argument for a layer that the model does not have.
  static AttentionPlan swapped(int64_t num_layers, const HierarchicalAttention& attention,
                               const std::vector<int64_t>& layers);

  std::vector<int64_t> swapped_layers() const;
  bool is_exact() const { return swapped_layers().empty(); }
  bool operator==(const AttentionPlan&) const = default;
};

// Layers, counted from 0: `7,9,11`, `4-11`, `all`. Sorted, each once. std::invalid_argument otherwise, and for layers
// that the model does not have.
std::vector<int64_t> parse_layers(std::string_view text, int64_t num_layers);
std::string layers_text(const std::vector<int64_t>& layers, int64_t num_layers);  // "7,9,11", "all"

// What config.json of a model that was trained here says of its attention, under "ramify": {"attention": "exact"}, or
// {"attention": "hierarchical", "hierarchy": "16*", "tie": "none", "window": 0} for all its layers.
nlohmann::json attention_note(const std::optional<HierarchicalAttention>& attention);
// The plan that the note in a folder's config.json asks for; exact where there is none, as in models of others.
// io::Error for a note that is broken.
AttentionPlan trained_plan(const std::string& folder);

Tie parse_tie(std::string_view text);  // block or none
std::string_view name_of(Tie tie);

}  // namespace ramify::models
