// The forest's storage: validation, the numbering of leaves, and derived arrays. Builders are elsewhere.
#include "ramify/forest.h"

#include <stdexcept>
#include <string>

#include "hierarchy/forest_writer.h"

namespace ramify {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw std::invalid_argument("forest: " + message);
}

void check_tree_begin(const std::vector<int64_t>& tree_begin) {
  if (tree_begin.empty() || tree_begin[0] != 0) fail("tree_begin must start with 0");
  for (size_t t = 0; t + 1 < tree_begin.size(); ++t) {
    // unsigned, since a hostile difference may overflow
    const auto roots =
        static_cast<int64_t>(static_cast<uint64_t>(tree_begin[t + 1]) - static_cast<uint64_t>(tree_begin[t]));
    if (roots != 0 && roots != 1) {
      fail("tree " + std::to_string(t) + " has " + std::to_string(roots) + " roots, expected one or none");
    }
  }
}

// A node's children must lie below it and follow the children of the node before it.
void check_first_child(const std::vector<int64_t>& first_child, int64_t num_roots) {
  if (first_child.empty()) fail("first_child must have num_nodes + 1 entries, it has 0");
  const auto num_nodes = static_cast<int64_t>(first_child.size()) - 1;
  if (first_child[0] != num_roots) {
    fail("first_child starts at " + std::to_string(first_child[0]) + " but there are " + std::to_string(num_roots) +
         " roots; nodes between them have two parents or none");
  }
  for (int64_t n = 0; n < num_nodes; ++n) {
    if (first_child[n + 1] < first_child[n]) {
      fail("the children of node " + std::to_string(n) + " overlap those of the next; node " +
           std::to_string(first_child[n + 1]) + " has two parents");
    }
    if (first_child[n + 1] > num_nodes) {
      fail("node " + std::to_string(n) + " has children up to " + std::to_string(first_child[n + 1] - 1) +
           ", the forest has " + std::to_string(num_nodes) + " nodes");
    }
    if (first_child[n + 1] > first_child[n] && first_child[n] <= n) {
      fail("node " + std::to_string(n) + " is its own ancestor (cycle)");
    }
  }
  if (first_child[num_nodes] != num_nodes) {
    fail("node " + std::to_string(first_child[num_nodes]) + " has no parent (gap)");
  }
}

std::vector<int64_t> levels_of(const std::vector<int64_t>& first_child, int64_t num_roots) {
  std::vector<int64_t> level_begin = {0};
  for (int64_t end = num_roots; end > level_begin.back(); end = first_child[end]) level_begin.push_back(end);
  return level_begin;
}

}  // namespace

ForestWriter::ForestWriter(std::vector<int64_t> tree_begin, int64_t num_nodes) : next_child_(tree_begin.back()) {
  arrays_.tree_begin = std::move(tree_begin);
  arrays_.first_child.reserve(num_nodes + 1);
}

Forest ForestWriter::finish() && {
  auto arrays = std::make_shared<Forest::Arrays>(std::move(arrays_));
  auto& first_child = arrays->first_child;
  first_child.push_back(next_child_);
  const auto num_nodes = static_cast<int64_t>(first_child.size()) - 1;
  arrays->level_begin = levels_of(first_child, arrays->tree_begin.back());

  // first_leaf holds leaf counts on the way up and is turned into offsets in place on the way down.
  auto& first_leaf = arrays->first_leaf;
  first_leaf.assign(num_nodes, 0);
  int64_t num_leaves = 0;
  for (int64_t n = num_nodes - 1; n >= 0; --n) {
    if (first_child[n] == first_child[n + 1]) {
      first_leaf[n] = 1;
      ++num_leaves;
    }
    for (int64_t c = first_child[n]; c < first_child[n + 1]; ++c) first_leaf[n] += first_leaf[c];
  }
  if (num_leaves > kMaxLeaves) {
    fail(std::to_string(num_leaves) + " leaves, at most " + std::to_string(kMaxLeaves) + " are supported");
  }
  const auto number_from = [&](int64_t leaf, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t count = first_leaf[n];
      first_leaf[n] = leaf;
      leaf += count;
    }
  };
  number_from(0, 0, arrays->tree_begin.back());
  arrays->leaf_nodes.resize(num_leaves);
  for (int64_t n = 0; n < num_nodes; ++n) {
    number_from(first_leaf[n], first_child[n], first_child[n + 1]);
    if (first_child[n] == first_child[n + 1]) arrays->leaf_nodes[first_leaf[n]] = n;
  }
  return Forest(std::move(arrays));
}

Forest::Forest() : Forest(ForestWriter({0}, 0).finish()) {}

Forest Forest::from_arrays(std::vector<int64_t> first_child, std::vector<int64_t> level_begin,
                           std::vector<int64_t> tree_begin) {
  check_tree_begin(tree_begin);
  const int64_t num_roots = tree_begin.back();
  check_first_child(first_child, num_roots);
  if (level_begin != levels_of(first_child, num_roots)) {
    fail(
        "level_begin does not fit first_child; it must hold where each level of nodes begins, and their "
        "number");
  }
  ForestWriter writer(std::move(tree_begin), static_cast<int64_t>(first_child.size()) - 1);
  for (size_t n = 0; n + 1 < first_child.size(); ++n) writer.add_node(first_child[n + 1] - first_child[n]);
  return std::move(writer).finish();
}

int64_t Forest::num_trees() const {
  return static_cast<int64_t>(arrays_->tree_begin.size()) - 1;
}
int64_t Forest::num_nodes() const {
  return static_cast<int64_t>(arrays_->first_leaf.size());
}
int64_t Forest::num_leaves() const {
  return static_cast<int64_t>(arrays_->leaf_nodes.size());
}
int64_t Forest::num_levels() const {
  return static_cast<int64_t>(arrays_->level_begin.size()) - 1;
}
int64_t Forest::depth() const {
  return num_levels() == 0 ? 0 : num_levels() - 1;
}

std::span<const int64_t> Forest::first_child() const {
  return arrays_->first_child;
}
std::span<const int64_t> Forest::level_begin() const {
  return arrays_->level_begin;
}
std::span<const int64_t> Forest::tree_begin() const {
  return arrays_->tree_begin;
}
std::span<const int64_t> Forest::leaf_nodes() const {
  return arrays_->leaf_nodes;
}
std::span<const int64_t> Forest::first_leaf() const {
  return arrays_->first_leaf;
}

std::vector<int64_t> Forest::parents() const {
  std::vector<int64_t> parents(num_nodes(), -1);
  for (int64_t n = 0; n < num_nodes(); ++n) {
    for (int64_t c = first_child()[n]; c < first_child()[n + 1]; ++c) parents[c] = n;
  }
  return parents;
}

std::vector<int64_t> Forest::sibling_index() const {
  std::vector<int64_t> index(num_nodes(), 0);
  for (int64_t n = 0; n < num_nodes(); ++n) {
    for (int64_t c = first_child()[n]; c < first_child()[n + 1]; ++c) index[c] = c - first_child()[n];
  }
  return index;
}

std::vector<int64_t> Forest::leaf_counts() const {
  std::vector<int64_t> counts(num_nodes(), 0);
  for (int64_t n = num_nodes() - 1; n >= 0; --n) {
    if (is_leaf(n)) counts[n] = 1;
    for (int64_t c = first_child()[n]; c < first_child()[n + 1]; ++c) counts[n] += counts[c];
  }
  return counts;
}

std::vector<int64_t> Forest::tree_leaf_begin() const {
  std::vector<int64_t> begin(num_trees() + 1, num_leaves());
  for (int64_t t = 0; t < num_trees(); ++t) {
    const int64_t root = tree_begin()[t];
    if (root < tree_begin().back()) begin[t] = first_leaf()[root];
  }
  return begin;
}

}  // namespace ramify
