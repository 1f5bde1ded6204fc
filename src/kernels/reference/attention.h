// Hierarchical attention as its definition: float64, one scalar at a time, every mode, exact gradients.
// The measure of every other implementation; never the fast one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ramify/forest.h"
#include "ramify/options.h"

namespace ramify::reference {

// All arrays are contiguous; leaves in the forest's order.
struct AttentionParams {
  Forest forest;
  int64_t heads = 1;
  int64_t key_heads = 1;  // divides heads: grouped queries
  int64_t dim = 0;        // of q and k
  int64_t value_dim = 0;
  int64_t position_dim = 0;
  std::span<const double> q;                // [leaves, heads, dim]
  std::span<const double> k;                // [leaves, key_heads, dim]
  std::span<const double> v;                // [leaves, key_heads, value_dim]
  std::span<const double> positions;        // [P, heads, position_dim]; empty: none
  std::span<const int64_t> position_index;  // [nodes] into positions, -1: the zero vector
  double scale = 1;
  bool include_self = false;
  Tie tie = Tie::block;
  Causal causal = Causal::none;
  int64_t window = 0;  // tie=none, without positions and alpha: leaves at most this far away are seen one by one
  // One value, or one for each depth of family from the root. 1 is softmax, 2 sparsemax.
  std::span<const double> alpha;
};

struct AttentionResult {
  std::vector<double> out;     // [leaves, heads, value_dim]
  std::vector<double> energy;  // [trees, heads]: e(root), -inf where nothing is attended to
};

struct AttentionGradients {
  std::vector<double> q, k, v, positions, alpha;  // shaped as the inputs
};

AttentionResult attention(const AttentionParams& params);

// Gradients of sum(out · grad_out) + sum(energy · grad_energy).
AttentionGradients attention_backward(const AttentionParams& params, std::span<const double> grad_out,
                                      std::span<const double> grad_energy);

}  // namespace ramify::reference
