#include "floors.h"

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

double score_pairs(const Forest& forest, Tie tie, Causal causal) {
  const std::vector<int64_t> leaves = forest.leaf_counts();
  double pairs = causal == Causal::none ? 0 : static_cast<double>(forest.num_leaves());
  for (int64_t node = 0; node < forest.num_nodes(); ++node) {
    const int64_t first = forest.first_child()[node], children = forest.num_children(node);
    for (int64_t place = 0; place < children; ++place) {
      const int64_t seen = causal == Causal::none ? children - 1 : place;
      pairs += static_cast<double>(seen) * static_cast<double>(tie == Tie::block ? 1 : leaves[first + place]);
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
  floors.multiply_adds = products * heads_and_dim * score_pairs(forest, bench.tie, bench.causal);
  floors.flop_ms = 1e3 * floors.multiply_adds / multiply_adds_per_second;
  return floors;
}

}  // namespace ramify::cli
