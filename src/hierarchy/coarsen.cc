// Both ways to coarsen say which leaf each leaf is absorbed by; the rest follows from that.
#include "ramify/coarsen.h"

#include <stdexcept>
#include <string>

#include "hierarchy/forest_writer.h"

namespace ramify {
namespace {

// keeper[n]: the node that n becomes part of, itself if it survives. Survivors keep their order, so levels stay levels;
// a survivor has as many children as survive of its own.
CoarseForest coarse_forest(const Forest& forest, const std::vector<int64_t>& keeper) {
  CoarseForest result;
  const auto survives = [&](int64_t node) { return keeper[node] == node; };
  ForestWriter writer({forest.tree_begin().begin(), forest.tree_begin().end()}, forest.num_nodes());
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    if (!survives(n)) continue;
    int64_t num_children = 0;
    for (int64_t c = forest.first_child()[n]; c < forest.first_child()[n + 1]; ++c) num_children += survives(c);
    writer.add_node(num_children);
    result.node.push_back(n);
  }
  result.forest = std::move(writer).finish();

  result.leaf.reserve(forest.num_leaves());
  int64_t leaf = -1, last_keeper = -1;
  for (const int64_t node : forest.leaf_nodes()) {
    leaf += keeper[node] != last_keeper;
    last_keeper = keeper[node];
    result.leaf.push_back(leaf);
  }
  return result;
}

}  // namespace

CoarseForest collapse_leaves(const Forest& forest) {
  std::vector<int64_t> keeper(forest.num_nodes());
  for (int64_t n = 0; n < forest.num_nodes(); ++n) keeper[n] = n;
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    const int64_t begin = forest.first_child()[n], end = forest.first_child()[n + 1];
    bool collapses = true;
    for (int64_t c = begin; c < end && collapses; ++c) collapses = forest.is_leaf(c);
    for (int64_t c = begin; c < end && collapses; ++c) keeper[c] = n;
  }
  return coarse_forest(forest, keeper);
}

CoarseForest merge_leaves(const Forest& forest, int64_t group) {
  if (group < 1) {
    throw std::invalid_argument("merge_leaves: group is " + std::to_string(group) + "; expected at least 1");
  }
  std::vector<int64_t> keeper(forest.num_nodes());
  const int64_t num_roots = forest.tree_begin().back();
  for (int64_t n = 0; n < num_roots; ++n) keeper[n] = n;
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    int64_t run = 0;  // leaves since the last child that is none
    for (int64_t c = forest.first_child()[n]; c < forest.first_child()[n + 1]; ++c) {
      run = forest.is_leaf(c) ? run + 1 : 0;
      keeper[c] = run == 0 || (run - 1) % group == 0 ? c : keeper[c - 1];
    }
  }
  return coarse_forest(forest, keeper);
}

}  // namespace ramify
