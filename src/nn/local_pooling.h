// Local pooling: the leaves behind a layer become fewer, and everything that is numbered by leaf or node follows.
#pragma once

#include <vector>

#include "ramify/nn/config.h"
#include "ramify/nn/layer.h"

namespace ramify::nn {

// What layers pass on.
struct LayerState {
  ForestTensors forest;
  std::vector<LeafRows>
      leaves;       // what the next layer takes; once there are `rows`, only which leaves are of which kind
  at::Tensor rows;  // [T, width]: what the last layer gave; undefined before the first
  LayerPositions positions;
  at::Tensor leaf;                // [leaves of the batch]: the leaf that holds each; undefined: each is its own
  std::vector<float> leaf_count;  // how many leaves of the batch each holds; empty: one each
};

// Replaces the leaves by fewer. Pooled ones are means over the leaves of the batch that they hold, and of the kind
// `pooled`; a node keeps its position, merged leaves have that of the first.
void pool(LayerState& state, const LocalPooling& pooling, size_t pooled);

// Gives the rows to the leaves of each kind.
void take_apart(LayerState& state);

}  // namespace ramify::nn
