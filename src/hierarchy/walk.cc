#include "hierarchy/walk.h"

#include <algorithm>
#include <cassert>

namespace ramify {
namespace {

std::vector<WalkNode> walk_nodes(const Forest& forest, WalkTotals& totals) {
  const std::vector<int64_t> sizes = forest.leaf_counts(), parents = forest.parents();
  std::vector<WalkNode> nodes(forest.num_nodes());
  for (int64_t n = 0; n < forest.num_nodes(); ++n) {
    WalkNode& node = nodes[n];
    node.first_child = forest.first_child()[n];
    node.num_children = forest.num_children(n);
    assert(node.num_children != 1);
    node.size = sizes[n];
    node.first_leaf = forest.first_leaf()[n];
    node.parent = parents[n];
    if (node.is_leaf()) continue;
    node.inner = totals.inner++;
  }
  return nodes;
}

// Weights a head of a narrow family, and of all that lies below a twig.
int64_t num_weights(const WalkNode& node) {
  const int64_t rows = node.size <= kTwigLeaves ? node.size : node.num_children;
  return rows * rows;
}

// Gives every family its weights.
void place_weights(std::vector<WalkNode>& nodes, WalkTotals& totals) {
  for (WalkNode& node : nodes) {  // parents come before their children
    if (node.is_leaf()) continue;
    if (node.is_wide()) {
      node.weights = totals.wide_members;
      totals.wide_members += node.num_children;
      continue;
    }
    if (node.parent < 0 || nodes[node.parent].size > kTwigLeaves) {
      node.weights = totals.weights;
      totals.weights += num_weights(node);
    }
    if (node.size > kTwigLeaves) continue;
    // a twig's own family first, then the twigs below it: b² and the squares of their sizes are together at most its
    // own
    int64_t next = node.weights + node.num_children * node.num_children;
    for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
      if (nodes[c].is_leaf()) continue;
      nodes[c].weights = next;
      next += num_weights(nodes[c]);
    }
    assert(next <= node.weights + num_weights(node));
  }
}

// Marks crown nodes that may belong to a bough: all crown nodes below them may, too.
void find_boughs(std::vector<WalkNode>& nodes) {
  for (WalkNode& node : nodes) node.is_in_bough = node.is_crown() && node.size <= kBoughLeaves && !node.is_wide();
  for (size_t n = nodes.size(); n-- > 0;) {  // parents come before their children
    const WalkNode& node = nodes[n];
    if (node.is_crown() && !node.is_in_bough && node.parent >= 0) nodes[node.parent].is_in_bough = 0;
  }
}

// The highest node of the bough that has crown node n; -1: none has it, or there is no such node.
int64_t bough_root(const std::vector<WalkNode>& nodes, int64_t n) {
  int64_t root = -1;
  for (; n >= 0 && nodes[n].is_in_bough; n = nodes[n].parent) root = n;
  return root;
}

// Gives every inner node below the roots of a grove (and the roots, when the crown does not see them) its row.
void number_slots(std::vector<WalkNode>& nodes, Grove& grove) {
  int64_t begin = grove.root_begin, end = grove.root_end;
  if (!grove.is_whole) {
    begin = nodes[grove.root_begin].first_child;
    end = nodes[grove.root_end - 1].first_child + nodes[grove.root_end - 1].num_children;
  }
  while (begin < end) {
    for (int64_t n = begin; n < end; ++n) {
      if (!nodes[n].is_leaf()) nodes[n].slot = grove.num_slots++;
    }
    const WalkNode &first = nodes[begin], &last = nodes[end - 1];
    begin = first.first_child;
    end = last.first_child + last.num_children;
  }
}

// The root above each node.
std::vector<int64_t> tree_roots(const std::vector<WalkNode>& nodes) {
  std::vector<int64_t> roots(nodes.size());
  for (size_t n = 0; n < nodes.size(); ++n) {  // parents come before their children
    roots[n] = nodes[n].parent < 0 ? static_cast<int64_t>(n) : roots[nodes[n].parent];
  }
  return roots;
}

// Cuts the roots of groves on one level, nodes [begin, end), into runs of about kGroveLeaves leaves. Only whole trees
// share one: where a tree is cut must not depend on what lies beside it in the batch.
void add_groves(Walk& walk, const std::vector<int64_t>& tree_root, int64_t begin, int64_t end, bool is_whole) {
  int64_t leaves = 0, grove_bough = -1, grove_tree = -1;
  Grove grove;
  const auto finish = [&](int64_t root_end) {
    if (leaves == 0) return;
    grove.root_end = root_end;
    grove.is_whole = is_whole;
    number_slots(walk.nodes, grove);
    walk.totals.grove_slots = std::max(walk.totals.grove_slots, grove.num_slots);
    walk.groves.push_back(grove);
    leaves = 0;
  };
  for (int64_t n = begin; n < end; ++n) {
    WalkNode& node = walk.nodes[n];
    const bool is_root = !node.is_crown() && (is_whole || walk.nodes[node.parent].is_crown());
    const int64_t bough = is_root ? bough_root(walk.nodes, node.parent) : -1;
    const bool is_elsewhere = bough != grove_bough || (!is_whole && tree_root[n] != grove_tree);
    if (!is_root || leaves + node.size > kGroveLeaves || is_elsewhere) finish(n);
    if (!is_root || node.is_leaf()) continue;  // a leaf among the roots has nothing to be done
    if (!is_whole) node.slot = walk.totals.crown_slots++;
    if (leaves == 0) grove = {.root_begin = n}, grove_bough = bough, grove_tree = tree_root[n];
    leaves += node.size;
  }
  finish(end);
}

// Groves in the order of their leaves, and boughs over them.
void add_boughs(Walk& walk) {
  const auto first_leaf = [&](const Grove& grove) { return walk.nodes[grove.root_begin].first_leaf; };
  std::sort(walk.groves.begin(), walk.groves.end(),
            [&](const Grove& a, const Grove& b) { return first_leaf(a) < first_leaf(b); });
  int64_t last_root = -1;
  std::vector<int64_t> bough_of(walk.nodes.size(), -1);  // by its root
  for (size_t i = 0; i < walk.groves.size(); ++i) {
    const Grove& grove = walk.groves[i];
    const auto g = static_cast<int64_t>(i);
    const int64_t root = bough_root(walk.nodes, walk.nodes[grove.root_begin].parent);
    if (root < 0 || root != last_root) {
      if (root >= 0) bough_of[root] = static_cast<int64_t>(walk.boughs.size());
      const int64_t is_whole = root < 0 ? grove.is_whole : walk.nodes[root].parent < 0;
      walk.boughs.push_back({.grove_begin = g, .is_whole = is_whole});
    }
    walk.boughs.back().grove_end = g + 1;
    last_root = root;
  }
  std::vector<std::vector<int64_t>> nodes(walk.boughs.size());
  for (const int64_t n : walk.crown) {
    if (walk.nodes[n].is_in_bough) nodes[bough_of[bough_root(walk.nodes, n)]].push_back(n);
  }
  for (size_t b = 0; b < nodes.size(); ++b) {
    walk.boughs[b].node_begin = static_cast<int64_t>(walk.bough_nodes.size());
    walk.bough_nodes.insert(walk.bough_nodes.end(), nodes[b].begin(), nodes[b].end());
    walk.boughs[b].node_end = static_cast<int64_t>(walk.bough_nodes.size());
  }
}

// Leaves below the nodes [begin, end) of one tree, in runs.
template <class IsWanted>
void add_runs(Walk& walk, int64_t begin, int64_t end, const IsWanted& is_wanted) {
  LeafRun run;
  const auto finish = [&] {
    if (run.count > 0) walk.runs.push_back(run);
    run.count = 0;
  };
  for (int64_t n = begin; n < end; ++n) {
    const WalkNode& node = walk.nodes[n];
    if (!is_wanted(node)) {
      finish();
      continue;
    }
    const bool continues = node.first_leaf == run.first_leaf + run.count && run.count + node.size <= kGroveLeaves;
    if (!continues) finish();
    if (run.count == 0) run.first_leaf = node.first_leaf;
    run.count += node.size;
  }
  finish();
}

// The most children that all ancestors of one leaf have together.
int64_t most_path_keys(const std::vector<WalkNode>& nodes) {
  std::vector<int64_t> keys(nodes.size());  // parents come before their children
  int64_t most = 0;
  for (size_t n = 0; n < nodes.size(); ++n) {
    keys[n] = nodes[n].num_children + (nodes[n].parent >= 0 ? keys[nodes[n].parent] : 0);
    most = std::max(most, keys[n]);
  }
  return most;
}

}  // namespace

Walk make_walk(const Forest& forest) {
  Walk walk;
  walk.nodes = walk_nodes(forest, walk.totals);
  place_weights(walk.nodes, walk.totals);
  find_boughs(walk.nodes);
  const std::vector<int64_t> tree_root = tree_roots(walk.nodes);
  const auto level_begin = forest.level_begin();
  walk.totals.num_roots = forest.num_levels() > 0 ? level_begin[1] : 0;
  walk.crown_level_begin.push_back(0);
  for (int64_t l = 0; l < forest.num_levels(); ++l) {
    for (int64_t n = level_begin[l]; n < level_begin[l + 1]; ++n) {
      if (!walk.nodes[n].is_crown()) continue;
      walk.nodes[n].slot = walk.totals.crown_slots++;
      walk.crown.push_back(n);
    }
    add_groves(walk, tree_root, level_begin[l], level_begin[l + 1], /*is_whole=*/l == 0);
    walk.crown_level_begin.push_back(static_cast<int64_t>(walk.crown.size()));
  }
  add_boughs(walk);
  const auto is_inner = [](const WalkNode& node) { return !node.is_leaf(); };
  for (const Grove& grove : walk.groves) {
    const int64_t step = grove.is_whole ? 1 : grove.root_end - grove.root_begin;  // a tree, or all that is of one
    for (int64_t n = grove.root_begin; n < grove.root_end; n += step) add_runs(walk, n, n + step, is_inner);
  }
  for (const int64_t n : walk.crown) {
    const WalkNode& node = walk.nodes[n];
    add_runs(walk, node.first_child, node.first_child + node.num_children,
             [](const WalkNode& child) { return child.is_leaf(); });
  }
  std::sort(walk.runs.begin(), walk.runs.end(),
            [](const LeafRun& a, const LeafRun& b) { return a.first_leaf < b.first_leaf; });
  walk.totals.path_keys = most_path_keys(walk.nodes);
  walk.leaf_nodes.assign(forest.leaf_nodes().begin(), forest.leaf_nodes().end());
  return walk;
}

}  // namespace ramify
