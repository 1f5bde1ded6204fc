// The one list of cases of attention: shapes, trees, options; degenerate trees by name. Whatever computes attention is
// tested, and timed, on these.
#pragma once

#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference/attention.h"
#include "ramify/builders.h"
#include "ramify/options.h"

namespace ramify::testing {

inline constexpr double kScale = 0.7;  // of all cases

struct AttentionMode {
  Tie tie = Tie::block;
  Causal causal = Causal::none;
  bool include_self = false;
  double alpha = 1;
  int64_t window = 0;
};

inline std::ostream& operator<<(std::ostream& stream, const AttentionMode& mode) {
  const char* causal[] = {"none", "block", "prefix"};
  return stream << "tie=" << (mode.tie == Tie::block ? "block" : "none")
                << " causal=" << causal[static_cast<int>(mode.causal)] << " self=" << mode.include_self
                << " alpha=" << mode.alpha << " window=" << mode.window;
}

// Every combination of tie, causal and include_self that is allowed.
inline std::vector<AttentionMode> attention_modes(std::vector<double> alphas = {1, 1.5, 2}) {
  std::vector<AttentionMode> modes;
  for (const double alpha : alphas) {
    for (const Tie tie : {Tie::block, Tie::none}) {
      modes.push_back({tie, Causal::none, false, alpha});
      for (const Causal causal : {Causal::none, Causal::block, Causal::prefix}) {
        modes.push_back({tie, causal, true, alpha});
      }
    }
  }
  return modes;
}

// Modes with an exact window, without positions.
inline std::vector<AttentionMode> window_modes() {
  std::vector<AttentionMode> modes;
  for (const int64_t window : {1, 2, 7, 40, 1000}) {
    modes.push_back({Tie::none, Causal::none, false, 1, window});
    modes.push_back({Tie::none, Causal::none, true, 1, window});
    modes.push_back({Tie::none, Causal::prefix, true, 1, window});
  }
  return modes;
}

struct AttentionCase {
  std::string name;
  Forest forest;
  AttentionMode mode;
  int64_t heads = 2;
  int64_t key_heads = 1;
  int64_t dim = 3;
  int64_t value_dim = 2;
  int64_t position_dim = 2;          // 0: no positions
  int64_t num_positions = 5;         // rows of the table
  std::vector<double> alpha_levels;  // instead of mode.alpha: one value for each depth of family
};

inline std::ostream& operator<<(std::ostream& stream, const AttentionCase& c) {
  return stream << c.name << " " << c.mode << " positions=" << c.position_dim;
}

struct NamedForest {
  std::string name;
  Forest forest;
};

inline std::ostream& operator<<(std::ostream& stream, const NamedForest& named) {
  return stream << named.name;
}

// The rows of the table of degenerate cases (docs/algorithm.md); padding is what no tree holds, so it needs no row.
inline std::vector<NamedForest> degenerate_forests() {
  using Array = std::vector<int64_t>;
  const int64_t o = kItem;
  return {
      {"empty_batch", Forest()},
      {"empty_trees", from_nested(Array{0, 0})},
      {"empty_trees_between_others", from_nested(Array{0, 2, o, o, 0, o, 0})},
      {"bare_leaf", from_nested(Array{o})},
      {"chain_to_one_leaf", from_nested(Array{1, 1, 1, o})},
      {"family_of_one_child", from_nested(Array{2, 1, 3, o, o, o, o})},
      {"unary_root", from_nested(Array{1, 1, 2, o, 2, o, o})},
      {"family_of_one_leaf", from_nested(Array{3, 1, o, 2, o, o, o})},
      {"only_families_of_one_leaf", from_nested(Array{2, 1, o, 1, 1, o})},
  };
}

inline std::vector<NamedForest> ordinary_forests() {
  using Array = std::vector<int64_t>;
  const int64_t o = kItem;
  return {
      {"flat", windows(Array{6}, {})},
      {"windows_with_short_ends", windows(Array{13, 4}, Branching::parse("3,2"))},
      {"ragged", from_nested(Array{3, 2, o, 3, o, o, o, o, 2, 2, o, o, 1, o})},
      {"comb", from_nested(Array{2, o, 2, o, 2, o, 2, o, 2, o, o})},
      {"wide_and_narrow", from_nested(Array{3, 9, o, o, o, o, o, o, o, o, o, 2, o, o, 2, o, o})},
  };
}

inline std::vector<AttentionCase> cases_of(const std::vector<NamedForest>& forests) {
  std::vector<AttentionCase> cases;
  for (const auto& [name, forest] : forests) {
    for (const AttentionMode& mode : attention_modes()) {
      for (const int64_t position_dim : {0, 2}) {
        AttentionCase c;
        c.name = name, c.forest = forest, c.mode = mode, c.position_dim = position_dim;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

inline std::vector<AttentionCase> attention_cases() {
  std::vector<NamedForest> forests = degenerate_forests();
  for (const NamedForest& forest : ordinary_forests()) forests.push_back(forest);
  return cases_of(forests);
}

// Numbers for a case, and the gradients that flow into its results.
struct AttentionArrays {
  std::vector<double> q, k, v, positions, alpha, grad_out, grad_energy;
  std::vector<int64_t> position_index;
};

inline AttentionArrays random_arrays(const AttentionCase& c, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto normal = [&](int64_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = std::normal_distribution<>()(random);
    return values;
  };
  const int64_t leaves = c.forest.num_leaves();
  AttentionArrays arrays;
  arrays.q = normal(leaves * c.heads * c.dim);
  arrays.k = normal(leaves * c.key_heads * c.dim);
  arrays.v = normal(leaves * c.key_heads * c.value_dim);
  arrays.grad_out = normal(leaves * c.heads * c.value_dim);
  arrays.grad_energy = normal(c.forest.num_trees() * c.heads);
  arrays.alpha = c.alpha_levels.empty() ? std::vector<double>{c.mode.alpha} : c.alpha_levels;
  if (c.position_dim == 0) return arrays;
  arrays.positions = normal(c.num_positions * c.heads * c.position_dim);
  for (int64_t n = 0; n < c.forest.num_nodes(); ++n) {
    arrays.position_index.push_back(std::uniform_int_distribution<int64_t>(-1, c.num_positions - 1)(random));
  }
  return arrays;
}

// The case as the reference takes it; `arrays` must outlive the result.
inline reference::AttentionParams params_of(const AttentionCase& c, const AttentionArrays& arrays) {
  reference::AttentionParams params;
  params.forest = c.forest;
  params.heads = c.heads, params.key_heads = c.key_heads;
  params.dim = c.dim, params.value_dim = c.value_dim, params.position_dim = c.position_dim;
  params.q = arrays.q, params.k = arrays.k, params.v = arrays.v;
  params.positions = arrays.positions, params.position_index = arrays.position_index;
  params.scale = kScale;
  params.include_self = c.mode.include_self, params.tie = c.mode.tie, params.causal = c.mode.causal;
  params.window = c.mode.window;
  params.alpha = arrays.alpha;
  return params;
}

}  // namespace ramify::testing
