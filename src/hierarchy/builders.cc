// Forests from segment lengths, nested lists, parent arrays and other forests.
#include "ramify/builders.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "hierarchy/forest_writer.h"

namespace ramify {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw std::invalid_argument(message);
}

// Every level must account for each segment of the level below, and only a tree may be empty.
void check_segments(std::span<const std::vector<int64_t>> levels) {
  if (levels.empty()) reject("from_segments: no levels given; expected at least the leaves of each tree");
  for (size_t l = 0; l < levels.size(); ++l) {
    int64_t total = 0;
    for (size_t s = 0; s < levels[l].size(); ++s) {
      const int64_t length = levels[l][s];
      const std::string where = "from_segments: level " + std::to_string(l) + ", segment " + std::to_string(s);
      if (length < 0) reject(where + " has length " + std::to_string(length));
      if (length == 0 && l + 1 < levels.size()) reject(where + " is empty; only a whole tree may be");
      if (length > kMaxLeaves - total) reject("from_segments: more than 2147483648 leaves in all");
      total += length;
    }
    if (l > 0 && total != static_cast<int64_t>(levels[l - 1].size())) {
      reject("from_segments: level " + std::to_string(l) + " covers " + std::to_string(total) + " segments, level " +
           std::to_string(l - 1) + " has " + std::to_string(levels[l - 1].size()));
    }
  }
}

}  // namespace

Forest from_segments(std::span<const std::vector<int64_t>> levels) {
  check_segments(levels);
  const int64_t num_leaves = std::accumulate(levels[0].begin(), levels[0].end(), int64_t{0});
  int64_t num_nodes = num_leaves;
  for (const auto& level : levels) num_nodes += static_cast<int64_t>(level.size());

  std::vector<int64_t> tree_begin = {0};
  for (const int64_t length : levels.back()) tree_begin.push_back(tree_begin.back() + (length > 0));
  ForestWriter writer(std::move(tree_begin), num_nodes);
  for (size_t l = levels.size(); l-- > 0;) {
    for (const int64_t length : levels[l]) {
      if (length > 0) writer.add_node(length);
    }
  }
  for (int64_t i = 0; i < num_leaves; ++i) writer.add_node(0);
  return std::move(writer).finish();
}

Forest from_nested(std::span<const int64_t> preorder) {
  const auto num_entries = static_cast<int64_t>(preorder.size());
  std::vector<int64_t> tree_begin = {0};
  std::vector<int64_t> open;  // items still to come in each list around the present one
  std::vector<int64_t> depth(num_entries), level_size;
  for (int64_t i = 0; i < num_entries; ++i) {
    const int64_t items = preorder[i];
    if (items < kItem) reject("from_nested: entry " + std::to_string(i) + " is " + std::to_string(items));
    if (items == 0 && !open.empty())
      reject("from_nested: an empty list inside tree " + std::to_string(tree_begin.size() - 2) +
           "; an inner node needs a leaf");
    if (open.empty()) tree_begin.push_back(tree_begin.back() + (items != 0));
    depth[i] = items == 0 ? -1 : static_cast<int64_t>(open.size());
    if (depth[i] >= static_cast<int64_t>(level_size.size())) level_size.push_back(0);
    if (depth[i] >= 0) ++level_size[depth[i]];

    if (!open.empty()) --open.back();
    if (items > 0) open.push_back(items);
    while (!open.empty() && open.back() == 0) open.pop_back();
  }
  if (!open.empty()) reject("from_nested: the last tree ends early; " + std::to_string(open.back()) + " items missing");

  // A stable sort by depth turns depth-first order into the forest's own.
  std::vector<int64_t> place(level_size.size());
  std::exclusive_scan(level_size.begin(), level_size.end(), place.begin(), int64_t{0});
  const int64_t num_nodes = std::accumulate(level_size.begin(), level_size.end(), int64_t{0});
  std::vector<int64_t> num_children(num_nodes);
  for (int64_t i = 0; i < num_entries; ++i) {
    if (depth[i] >= 0) num_children[place[depth[i]]++] = std::max<int64_t>(preorder[i], 0);
  }
  ForestWriter writer(std::move(tree_begin), num_nodes);
  for (const int64_t count : num_children) writer.add_node(count);
  return std::move(writer).finish();
}

namespace {

// Some node whose chain of parents never ends lies on a cycle or below one; walking up far enough lands on
// it.
[[noreturn]] void fail_at_cycle(std::span<const int64_t> parents, const std::vector<int64_t>& node_of_input) {
  auto node = static_cast<int64_t>(std::find(node_of_input.begin(), node_of_input.end(), -1) - node_of_input.begin());
  for (size_t step = 0; step < parents.size(); ++step) node = parents[node];
  reject("from_parents: node " + std::to_string(node) + " is its own ancestor (cycle)");
}

}  // namespace

ParentForest from_parents(std::span<const int64_t> parents) {
  const auto num_nodes = static_cast<int64_t>(parents.size());
  std::vector<int64_t> counts(num_nodes + 1, 0);  // children of p in counts[p + 1]; the roots are those of -1
  for (int64_t i = 0; i < num_nodes; ++i) {
    if (parents[i] < -1 || parents[i] >= num_nodes) {
      reject("from_parents: node " + std::to_string(i) + " has parent " + std::to_string(parents[i]) +
           "; expected -1 for a root or a node from 0 to " + std::to_string(num_nodes - 1));
    }
    ++counts[parents[i] + 1];
  }
  // Counting sort by parent: once all are placed, children_end[p + 1] is where the children of p end.
  std::vector<int64_t> children(num_nodes), children_end(num_nodes + 1);
  std::exclusive_scan(counts.begin(), counts.end(), children_end.begin(), int64_t{0});
  for (int64_t i = 0; i < num_nodes; ++i) children[children_end[parents[i] + 1]++] = i;

  ParentForest result;
  result.node_of_input.assign(num_nodes, -1);
  std::vector<int64_t> order;
  order.reserve(num_nodes);
  const auto visit_children = [&](int64_t parent) {
    const int64_t end = children_end[parent + 1];
    for (int64_t j = end - counts[parent + 1]; j < end; ++j) {
      result.node_of_input[children[j]] = static_cast<int64_t>(order.size());
      order.push_back(children[j]);
    }
  };
  visit_children(-1);
  const auto num_roots = static_cast<int64_t>(order.size());
  for (size_t n = 0; n < order.size(); ++n) visit_children(order[n]);
  if (static_cast<int64_t>(order.size()) != num_nodes) fail_at_cycle(parents, result.node_of_input);

  std::vector<int64_t> tree_begin(num_roots + 1);
  std::iota(tree_begin.begin(), tree_begin.end(), 0);
  ForestWriter writer(std::move(tree_begin), num_nodes);
  for (const int64_t input : order) writer.add_node(counts[input + 1]);
  result.forest = std::move(writer).finish();
  return result;
}

Forest concatenate(std::span<const Forest> forests) {
  int64_t num_nodes = 0, num_levels = 0, num_leaves = 0;
  std::vector<int64_t> tree_begin = {0};
  for (const Forest& forest : forests) {
    if (forest.num_leaves() > kMaxLeaves - num_leaves) reject("concatenate: more than 2147483648 leaves in all");
    num_leaves += forest.num_leaves();
    num_nodes += forest.num_nodes();
    num_levels = std::max(num_levels, forest.num_levels());
    const int64_t offset = tree_begin.back();
    for (const int64_t begin : forest.tree_begin().subspan(1)) tree_begin.push_back(offset + begin);
  }
  // Forests that have ended drop out, so a deep one among many shallow ones costs nothing extra.
  std::vector<const Forest*> alive;
  for (const Forest& forest : forests) alive.push_back(&forest);
  ForestWriter writer(std::move(tree_begin), num_nodes);
  for (int64_t level = 0; level < num_levels; ++level) {
    std::erase_if(alive, [&](const Forest* forest) { return forest->num_levels() <= level; });
    for (const Forest* forest : alive) {
      for (int64_t n = forest->level_begin()[level]; n < forest->level_begin()[level + 1]; ++n) {
        writer.add_node(forest->num_children(n));
      }
    }
  }
  return std::move(writer).finish();
}

}  // namespace ramify
