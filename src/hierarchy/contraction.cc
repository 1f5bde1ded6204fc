#include "hierarchy/contraction.h"

#include <numeric>

#include "hierarchy/forest_writer.h"

namespace ramify {
namespace {

bool has_only_children(const Forest& forest) {
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    if (forest.num_children(n) == 1) return true;
  }
  return false;
}

}  // namespace

Contraction contract(const Forest& forest) {
  Contraction result;
  if (!has_only_children(forest)) {
    result.forest = forest;
    result.top.resize(forest.num_nodes());
    std::iota(result.top.begin(), result.top.end(), 0);
    return result;
  }
  const auto first_child = forest.first_child();
  const auto tree_begin = forest.tree_begin();
  ForestWriter writer({tree_begin.begin(), tree_begin.end()}, forest.num_nodes());
  for (int64_t root = 0; root < tree_begin.back(); ++root) result.top.push_back(root);
  for (size_t i = 0; i < result.top.size(); ++i) {  // grows while it is walked: breadth first
    int64_t bottom = result.top[i];
    while (forest.num_children(bottom) == 1) bottom = first_child[bottom];
    writer.add_node(forest.num_children(bottom));
    for (int64_t c = first_child[bottom]; c < first_child[bottom + 1]; ++c) result.top.push_back(c);
  }
  result.forest = std::move(writer).finish();
  return result;
}

}  // namespace ramify
