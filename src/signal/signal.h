// One record, compiled: a tree with leaves of several modalities, compact, and stored breadth first so that a batch is
// made by putting levels behind each other (batch.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ramify::signal {

// How the place of a node inside its family is told.
enum class Domain : uint8_t {
  none,      // roots, items of a set
  key,       // of an object
  sequence,  // 1-D: items of an array, paragraphs, sentences, tokens
  grid,      // 2-D: patches
  graph,     // nodes of a graph
};

// For people: what a node is.
struct NodeLabel {
  std::string label;  // key or place among its siblings: "title", "0"; of a patch "row,column"
  std::string kind;   // object array set graph text paragraph sentence token number category image patch vector empty
  std::string text;   // what a leaf says
};

// What is to be predicted of the record, if it says so.
inline constexpr int32_t kNoClass = -1;      // an item without a label
inline constexpr int32_t kUnseenClass = -2;  // one that training did not have: no model can be right

struct SignalTarget {
  bool known = false;
  double value = 0;              // regression
  std::vector<int32_t> classes;  // classification: one; multilabel: those that hold; nodes: one an item
  // nodes: the leaves [begin, end) of each item, whether the labels are known or not
  std::vector<int32_t> leaf_begin, leaf_end;
};

struct Signal {
  // Nodes, level by level from the root (node 0), left to right.
  std::vector<int32_t> level_begin;  // [levels + 1]
  std::vector<int32_t> children;     // [nodes]: how many
  std::vector<Domain> domain;        // [nodes]
  // [nodes]: key: its id, or -1 - u for unknown_keys[u]; sequence: 0, 1, ...; grid: row << 16 | column;
  // graph: row of graph_positions
  std::vector<int32_t> place;

  // Leaves, left to right.
  std::vector<uint8_t> modality;  // [leaves]: place in Schema::modalities()
  std::vector<int32_t> id;        // [leaves]: of ids and numbers; 0 for dense ones
  std::vector<float> values;      // numbers (one each) and vectors (their width each), in the order of the leaves
  std::vector<uint8_t> patches;   // 3 * patch * patch bytes each, the same

  std::vector<std::vector<int32_t>> unknown_keys;  // each one's words as token ids
  std::vector<float> graph_positions;              // [rows, graph_features]
  std::vector<int32_t> graph_begin;                // [graphs]: first row of each graph

  SignalTarget target;
  bool truncated = false;         // it had more than Schema::max_leaves
  std::vector<NodeLabel> labels;  // [nodes] where asked for, else empty

  int64_t num_nodes() const { return static_cast<int64_t>(children.size()); }
  int64_t num_leaves() const { return static_cast<int64_t>(modality.size()); }
  int64_t num_levels() const { return static_cast<int64_t>(level_begin.size()) - 1; }
};

// Computed at each call, in linear time.
std::vector<int32_t> leaf_counts(const Signal& signal);  // [nodes]: leaves below each
std::vector<int32_t> leaf_nodes(const Signal& signal);   // [leaves]: node of each

}  // namespace ramify::signal
