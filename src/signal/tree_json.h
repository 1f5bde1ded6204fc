// A record with labels as a nested document: what is drawn of it, and what is said about its nodes.
#pragma once

#include <iterator>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <utility>
#include <vector>

#include "signal/signal.h"

namespace ramify::signal {

// Calls make(node, leaves below it, children) for each node, children before their parents, and gives the root.
template <class Tree, class Make>
Tree fold_tree(const Signal& signal, const Make& make) {
  const std::vector<int32_t> leaves = leaf_counts(signal);
  std::vector<Tree> trees(signal.children.size());
  size_t child = trees.size();
  for (size_t n = trees.size(); n-- > 0;) {
    child -= static_cast<size_t>(signal.children[n]);
    const auto first = trees.begin() + static_cast<int64_t>(child);
    trees[n] =
        make(n, leaves[n],
             std::vector<Tree>(std::make_move_iterator(first), std::make_move_iterator(first + signal.children[n])));
  }
  return std::move(trees.front());
}

// {"label", "kind", "leaves"} and, where there are any, "text", "mass" and "children". `leaf_mass` [leaves] may be
// empty; what an inner node has is the sum of its leaves.
nlohmann::json tree_json(const Signal& signal, std::span<const double> leaf_mass = {});

}  // namespace ramify::signal
