// What an encoder takes: a forest, the features of its leaves by modality, and the positions of its nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ramify/attention.h"

namespace ramify::nn {

enum class Feature {
  ids,      // a row of a table
  numbers,  // bias[field] + value·slope[field]
  dense,    // the vector itself
};

struct Modality {
  std::string name;  // without dots; "pooled" is taken
  Feature feature = Feature::ids;
  int64_t size = 0;   // ids: rows of the table; numbers: fields; dense: width
  int64_t width = 0;  // of the vectors of ids and numbers; 0: the config's token_width
};

// The leaves of one modality in a batch, n of them.
struct LeafInput {
  at::Tensor leaf;   // [n] int64, ascending: number of the leaf. Undefined: n is 0, or all leaves of the batch
  at::Tensor id;     // [n] int64: row of the table, or field; undefined for dense
  at::Tensor value;  // numbers [n], dense [n, width]: float32, or uint8 that counts in 255ths; undefined for ids
};

// The kinds of position vectors, in the order in which PositionInput numbers its rows.
enum class Domain { key, sequence, grid, graph };

// The distinct positions of a batch, one row each: keys first, then places, cells, graph. What is undefined has no
// rows.
struct PositionInput {
  at::Tensor keys;             // [K] int64, -1: unknown
  at::Tensor key_token_begin;  // [K + 1] int64 offsets into key_tokens; needed for Keys::tokens only
  at::Tensor key_tokens;       // int64 rows of the token table
  at::Tensor places;           // [S] int64: place in a sequence
  at::Tensor cells;            // [C, 2] float32: row and column in a grid
  at::Tensor graph;            // [G, graph_features] float32
  at::Tensor index;            // [num_nodes] int64: row of each node, -1: none. Undefined: no node has a position
};

struct Batch {
  ForestTensors forest;
  std::vector<LeafInput> leaves;  // one a modality of the model, in its order
  PositionInput positions;

  Batch to(at::Device device) const;
};

}  // namespace ramify::nn
