// Writes a forest node by node in its own order (level by level from the roots), which is how every builder
// ends.
#pragma once

#include <cstdint>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

struct Forest::Arrays {
  std::vector<int64_t> first_child, level_begin, tree_begin, leaf_nodes, first_leaf;
};

class ForestWriter {
 public:
  // tree_begin as in Forest; its last entry is the number of roots. `num_nodes` is exact or an estimate.
  ForestWriter(std::vector<int64_t> tree_begin, int64_t num_nodes);

  void add_node(int64_t num_children) {
    arrays_.first_child.push_back(next_child_);
    next_child_ += num_children;
  }
  Forest finish() &&;

 private:
  Forest::Arrays arrays_;
  int64_t next_child_;
};

}  // namespace ramify
