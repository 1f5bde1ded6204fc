// Counts the operations of attention, flat and over windows: in the paper's convention and in true
// multiply-adds.
#pragma once

#include <cstdint>

#include "ramify/builders.h"
#include "ramify/forest.h"

namespace ramify {

struct AttentionShape {
  int64_t tokens = 0;
  int64_t width = 768;  // all heads together
  int64_t heads = 12;
};

struct AttentionCost {
  double paper_flops = 0;    // score and value products as (4·width + heads) a pair of siblings, full windows
  double multiply_adds = 0;  // what the two passes really do, on the real (short) windows
  int64_t score_pairs = 0;   // ordered pairs of siblings, each scored once a head
};

// Softmax attention of all tokens with all tokens.
AttentionCost flat_cost(const AttentionShape& shape);

// Hierarchical attention over `windows`. Throws std::invalid_argument as `windows` does.
AttentionCost hierarchical_cost(const AttentionShape& shape, const Branching& branching);

// Hierarchical attention over any forest; shape.tokens is not looked at. The paper's convention counts b² pairs a
// family and one for each root.
AttentionCost forest_cost(const AttentionShape& shape, const Forest& forest);

}  // namespace ramify
