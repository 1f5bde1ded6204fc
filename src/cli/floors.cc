#include "floors.h"

#include <algorithm>
#include <vector>

#include "machine_rates.h"

namespace ramify::cli {
namespace {

double tensor_bytes(const AttentionBench& bench, int64_t tokens, int64_t heads) {
  const double element = bench.dtype == "float32" ? 4 : 2;
  return element * static_cast<double>(tokens) * static_cast<double>(heads) * static_cast<double>(bench.dim);
}

}  // namespace

double forward_bytes(const AttentionBench& bench, int64_t tokens) {
  return 2 * tensor_bytes(bench, tokens, bench.heads) + 2 * tensor_bytes(bench, tokens, bench.key_heads);
}

double backward_bytes(const AttentionBench& bench, int64_t tokens) {
  return 3 * tensor_bytes(bench, tokens, bench.heads) + 4 * tensor_bytes(bench, tokens, bench.key_heads);
}

namespace {

// Siblings to the left, and to the right, of each leaf and its ancestors together.
struct PathSiblings {
  explicit PathSiblings(const Forest& forest) : left(forest.num_nodes()), right(forest.num_nodes()) {
    for (int64_t node = 0; node < forest.num_nodes(); ++node) {
      const int64_t first = forest.first_child()[node], children = forest.num_children(node);
      for (int64_t place = 0; place < children; ++place) {
        left[first + place] = left[node] + place;
        right[first + place] = right[node] + children - 1 - place;
      }
    }
  }
  std::vector<int64_t> left, right;  // by node
};

}  // namespace

double window_pairs(const Forest& forest, Causal causal, int64_t window) {
  const PathSiblings siblings(forest);
  const std::vector<int64_t> begin = forest.tree_leaf_begin();
  int64_t pairs = 0;
  for (int64_t t = 0; t < forest.num_trees(); ++t) {
    for (int64_t i = begin[t]; i < begin[t + 1]; ++i) {
      const int64_t left = std::max(begin[t], i - window), right = std::min(begin[t + 1] - 1, i + window);
      pairs += i - left + siblings.left[forest.leaf_nodes()[left]];
      pairs += causal == Causal::none ? right - i + siblings.right[forest.leaf_nodes()[right]] : 1;
    }
  }
  return static_cast<double>(pairs);
}

double score_pairs(const Forest& forest, Tie tie, Causal causal) {
  const std::vector<int64_t> leaves = forest.leaf_counts();
  const bool by_node = tie == Tie::block && causal != Causal::prefix;
  double pairs = causal == Causal::none ? 0 : static_cast<double>(forest.num_leaves());
  for (int64_t node = 0; node < forest.num_nodes(); ++node) {
    const int64_t first = forest.first_child()[node], children = forest.num_children(node);
    for (int64_t place = 0; place < children; ++place) {
      const int64_t seen = causal == Causal::none ? children - 1 : place;
      pairs += static_cast<double>(seen) * static_cast<double>(by_node ? 1 : leaves[first + place]);
    }
  }
  return pairs;
}

Floors floors_of(const AttentionBench& bench, const Forest& forest, double multiply_adds_per_second) {
  const int64_t tokens = forest.num_leaves();
  const bool backward = bench.pass == Pass::forward_backward;
  const double products = backward ? 2 + 5 : 2;
  const double heads_and_dim = static_cast<double>(bench.heads) * static_cast<double>(bench.dim);
  Floors floors;
  const auto add_pass = [&](double bytes) {
    floors.bytes += bytes;
    floors.copy_ms += 1e3 * bytes / copy_bandwidth(bytes, bench.threads);
  };
  add_pass(forward_bytes(bench, tokens));
  if (backward) add_pass(backward_bytes(bench, tokens));
  const double pairs = bench.window > 0 ? window_pairs(forest, bench.causal, bench.window)
                                        : score_pairs(forest, bench.tie, bench.causal);
  floors.multiply_adds = products * heads_and_dim * pairs;
  floors.flop_ms = 1e3 * floors.multiply_adds / multiply_adds_per_second;
  return floors;
}

}  // namespace ramify::cli
