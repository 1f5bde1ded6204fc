#include "signal/signal_builder.h"

#include <algorithm>
#include <utility>

namespace ramify::signal {

void SignalBuilder::reset(int64_t max_leaves, uint8_t category) {
  max_leaves_ = max_leaves;
  category_ = category;
  nodes_.clear();
  labels_.clear();
  open_.clear();
  signal_.modality.clear();
  signal_.id.clear();
  signal_.values.clear();
  signal_.patches.clear();
  signal_.unknown_keys.clear();
  signal_.graph_positions.clear();
  signal_.graph_begin.clear();
  signal_.truncated = false;
}

void SignalBuilder::close(int32_t empty) {
  const auto node = static_cast<size_t>(open_.back());
  open_.pop_back();
  if (nodes_[node].children > 0) return;
  signal_.modality.push_back(category_);
  signal_.id.push_back(empty);
  if (!labels_.empty()) labels_[node].kind = "empty";
}

void SignalBuilder::add_leaves(uint8_t modality, std::span<const int32_t> ids) {
  const auto depth = static_cast<int32_t>(open_.size());
  nodes_[static_cast<size_t>(open_.back())].children += static_cast<int32_t>(ids.size());
  const size_t begin = nodes_.size();
  nodes_.resize(begin + ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    nodes_[begin + i] = {depth, 0, static_cast<int32_t>(i), Domain::sequence};
  }
  signal_.modality.insert(signal_.modality.end(), ids.size(), modality);
  signal_.id.insert(signal_.id.end(), ids.begin(), ids.end());
}

void SignalBuilder::add_values(std::span<const float> values) {
  signal_.values.insert(signal_.values.end(), values.begin(), values.end());
}

void SignalBuilder::add_patch_bytes(std::span<const uint8_t> bytes) {
  signal_.patches.insert(signal_.patches.end(), bytes.begin(), bytes.end());
}

int32_t SignalBuilder::add_unknown_key(std::vector<int32_t> tokens) {
  signal_.unknown_keys.push_back(std::move(tokens));
  return -static_cast<int32_t>(signal_.unknown_keys.size());
}

int32_t SignalBuilder::add_graph(std::span<const float> rows, int64_t k) {
  const auto first = static_cast<int32_t>(static_cast<int64_t>(signal_.graph_positions.size()) / k);
  signal_.graph_begin.push_back(first);
  signal_.graph_positions.insert(signal_.graph_positions.end(), rows.begin(), rows.end());
  return first;
}

void SignalBuilder::describe(NodeLabel label, size_t before) {
  labels_.resize(nodes_.size());
  labels_[nodes_.size() - 1 - before] = std::move(label);
}

Signal SignalBuilder::finish() {
  Signal signal = signal_;  // a copy: exactly as large as it has to be
  int32_t levels = 0;
  for (const Node& node : nodes_) levels = std::max(levels, node.depth + 1);
  signal.level_begin.assign(static_cast<size_t>(levels) + 1, 0);
  for (const Node& node : nodes_) ++signal.level_begin[static_cast<size_t>(node.depth) + 1];
  for (size_t level = 1; level < signal.level_begin.size(); ++level) {
    signal.level_begin[level] += signal.level_begin[level - 1];
  }
  // Within a level, depth first is left to right.
  next_.assign(signal.level_begin.begin(), signal.level_begin.end());
  signal.children.resize(nodes_.size());
  signal.domain.resize(nodes_.size());
  signal.place.resize(nodes_.size());
  signal.labels.resize(labels_.size());
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    const auto to = static_cast<size_t>(next_[static_cast<size_t>(node.depth)]++);
    signal.children[to] = node.children;
    signal.domain[to] = node.domain;
    signal.place[to] = node.place;
    if (!labels_.empty()) signal.labels[to] = std::move(labels_[n]);
  }
  return signal;
}

}  // namespace ramify::signal
