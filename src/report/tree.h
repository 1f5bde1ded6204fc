// A tree as HTML: nested and collapsible, with the share of attention that each node received where that is known.
// Text flows as tokens shaded by their mass, an image is a grid of shaded patches, everything else is a row with a bar.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/table.h"

namespace ramify::report {

// All strings are plain text of any bytes; they are escaped here. A tree may be deep, but copying and destroying it
// recurse: whoever makes one bounds its depth (kMaxTreeDepth for what is read from files).
struct TreeNode {
  std::string label;  // key or place among its siblings: "title", "0"; of a patch "row,column"
  std::string kind;   // object array set graph text paragraph sentence token number category image patch vector empty
  std::string text;   // what a leaf says: the token, the number as written, the category
  double mass = -1;   // share of the tree's attention in 0..1; -1: not known
  int64_t leaves = 1;
  std::vector<TreeNode> children;
};

inline constexpr int64_t kMaxTreeDepth = 2000;

// What was predicted for a node that has a label of its own.
struct ItemLabel {
  std::string prediction;
  std::string truth;  // empty: not known

  bool is_wrong() const { return !truth.empty() && truth != prediction; }
};

struct ItemLabels {
  std::vector<const TreeNode*> path;  // from the root to the parent of the nodes: shown open
  std::unordered_map<const TreeNode*, ItemLabel> of;
};

// One element to be put into a page. Nodes that matter are open, the others closed; a chain of only children is one
// row. Deep levels are drawn without further indentation, and no more than some thousands of nodes: what is left out
// is counted.
std::string tree_html(const TreeNode& root, const ItemLabels& labels = {});

// A page of its own: a title, tables, the tree.
std::string tree_page(const std::string& title, std::span<const Table> tables, const TreeNode& root);

}  // namespace ramify::report
