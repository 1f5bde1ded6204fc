// Several records as one forest with the features of its leaves: what a model gets. Plain arrays, ready to be made into
// tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ramify/forest.h"
#include "signal/schema.h"
#include "signal/signal.h"

namespace ramify::signal {

// The leaves of one modality; n of them.
struct LeafRows {
  std::vector<int64_t> leaf;  // [n] their numbers in the batch's forest, ascending
  std::vector<int64_t> id;    // [n] ids and numbers; empty for dense ones
  std::vector<float> value;   // [n, width] numbers and dense ones; empty for ids
  int64_t width = 0;          // 0 for ids, 1 for numbers
};

// The distinct positions of a batch, one row each, numbered through: keys, then places, cells, graph nodes.
struct Positions {
  std::vector<int64_t> keys;             // key id, -1: not in the schema
  std::vector<int64_t> key_token_begin;  // [keys + 1] into key_tokens
  std::vector<int64_t> key_tokens;       // the key's words, so that unseen keys mean something
  std::vector<int64_t> places;           // 1-D
  std::vector<float> cells;              // [n, 2] row, column
  std::vector<float> graph;              // [n, graph_features]
  std::vector<int64_t> index;            // [num_nodes] row of each node, -1: none
};

// One row for every vector that the model is to give: one a record, or for Task::nodes one an item of Target::of.
struct Targets {
  std::vector<int64_t> leaf_begin, leaf_end;  // the leaves of the batch that belong to the row
  std::vector<int64_t> classes;               // classification, nodes: [rows]; kNoClass: not known
  // regression: [rows], in deviations from the mean; multilabel: [rows, classes], 0 or 1; NaN: not known
  std::vector<float> values;
};

struct Batch {
  Forest forest;
  std::vector<LeafRows> leaves;  // one a modality of the schema, in its order
  Positions positions;
  Targets targets;
  std::vector<int64_t> records;  // number of each tree in its data set; set by the Loader

  int64_t num_leaves() const { return forest.num_leaves(); }
};

enum class Structure {
  hierarchical,
  flat,  // each tree one family of all its leaves, their places in leaf order
};

struct CollateOptions {
  Structure structure = Structure::hierarchical;
  // Training: each graph's Laplacian eigenvectors get random signs, which are as good as any.
  std::optional<uint64_t> flip_signs_seed;
};

// Linear in the number of nodes. The leaves of record t are those of tree t, in the same order.
Batch collate(std::span<const Signal* const> signals, const Schema& schema, const CollateOptions& options = {});
inline Batch collate(std::span<const Signal* const> signals, const Schema& schema, Structure structure) {
  return collate(signals, schema, CollateOptions{.structure = structure});
}

}  // namespace ramify::signal
