// Builds a Signal node by node, as a record is read: depth first. Only at the end are the nodes put level by level. It
// is used again and again and keeps its memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "signal/signal.h"

namespace ramify::signal {

struct Place {
  Domain domain = Domain::none;
  int32_t place = 0;
};

class SignalBuilder {
 public:
  // `category`: the modality of leaves that stand for empty families.
  void reset(int64_t max_leaves, uint8_t category);

  int64_t num_leaves() const { return static_cast<int64_t>(signal_.modality.size()); }
  int64_t room() const { return max_leaves_ - num_leaves(); }  // leaves that may still come

  void open(Place place) { open_.push_back(add_node(place)); }
  // A family without children becomes a leaf: row `empty` of the categories.
  void close(int32_t empty);

  void add_leaf(Place place, uint8_t modality, int32_t id) {
    add_node(place);
    signal_.modality.push_back(modality);
    signal_.id.push_back(id);
  }
  void add_leaves(uint8_t modality, std::span<const int32_t> ids);  // a sequence from place 0
  void add_values(std::span<const float> values);                   // of the leaf just added
  void add_patch_bytes(std::span<const uint8_t> bytes);
  int32_t add_unknown_key(std::vector<int32_t> tokens);       // its place
  int32_t add_graph(std::span<const float> rows, int64_t k);  // its first row
  void mark_truncated() { signal_.truncated = true; }
  bool is_truncated() const { return signal_.truncated; }

  // Describes the node added last, or one added before it. Where labels are wanted, every node is described.
  void describe(NodeLabel label, size_t before = 0);

  Signal finish();  // all families are closed

 private:
  struct Node {
    int32_t depth;
    int32_t children;
    int32_t place;
    Domain domain;
  };

  int32_t add_node(Place place) {
    if (!open_.empty()) ++nodes_[static_cast<size_t>(open_.back())].children;
    nodes_.push_back({static_cast<int32_t>(open_.size()), 0, place.place, place.domain});
    return static_cast<int32_t>(nodes_.size()) - 1;
  }

  int64_t max_leaves_ = 0;
  uint8_t category_ = 0;
  std::vector<Node> nodes_;  // depth first
  std::vector<NodeLabel> labels_;
  std::vector<int32_t> open_;
  std::vector<int32_t> next_;  // [levels]
  Signal signal_;              // leaves and tables
};

}  // namespace ramify::signal
