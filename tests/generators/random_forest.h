// Random ragged trees for RapidCheck: empty trees and bare leaves among them, families of one, leaves at any depth.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "ramify/builders.h"

namespace ramify::testing {

struct TreeLimits {
  int64_t max_depth = 8;
  int64_t max_family = 40;
  int64_t max_leaves = 400;
};

// A law holds for all batches that main.cc asks for: 20 of these, so 2,000 trees. Attention on many trees at once
// costs little more than on a few.
inline constexpr int64_t kTreesPerBatch = 100;

// Trees as `from_nested` reads them: they are easy to print, and to cut smaller when a law fails.
struct TreeBatch {
  std::vector<std::vector<int64_t>> trees;

  std::vector<int64_t> preorder() const {
    std::vector<int64_t> all;
    for (const auto& tree : trees) all.insert(all.end(), tree.begin(), tree.end());
    return all;
  }
  Forest forest() const { return from_nested(preorder()); }
};

inline std::ostream& operator<<(std::ostream& stream, const TreeBatch& batch) {
  for (const auto& tree : batch.trees) {
    std::vector<int64_t> open;
    for (const int64_t items : tree) {
      if (items == kItem) stream << ".";
      if (items == 0) stream << "[]";
      if (items > 0) stream << "[";
      if (!open.empty()) --open.back();
      if (items > 0) open.push_back(items);
      for (; !open.empty() && open.back() == 0; open.pop_back()) stream << "]";
    }
    stream << " ";
  }
  return stream;
}

class RandomTree {
 public:
  RandomTree(std::mt19937_64& random, const TreeLimits& limits) : random_(random), limits_(limits) {}

  std::vector<int64_t> draw() {
    if (chance(0.05)) return {0};
    // Sizes of all magnitudes, so that small odd trees are as frequent as large ones.
    const double most = std::log(static_cast<double>(limits_.max_leaves) + 1);
    const auto leaves = static_cast<int64_t>(std::exp(std::uniform_real_distribution<>(0, most)(random_)));
    add_node(std::clamp<int64_t>(leaves, 1, limits_.max_leaves), uniform(0, limits_.max_depth));
    return preorder_;
  }

 private:
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }

  // A node with at most `leaves` leaves and `depth` levels below it.
  void add_node(int64_t leaves, int64_t depth) {
    if (depth == 0 || (leaves == 1 && chance(0.5))) {
      preorder_.push_back(kItem);
      return;
    }
    const int64_t widest = std::min(limits_.max_family, leaves);
    const int64_t family = chance(0.3) ? widest : uniform(1, widest);
    preorder_.push_back(family);
    for (int64_t c = 0; c < family; ++c) {
      const int64_t still_needed = family - 1 - c;
      const int64_t most = std::min(leaves - still_needed, 1 + 2 * leaves / family);
      const int64_t share = still_needed == 0 ? leaves : uniform(1, most);
      add_node(share, depth - 1);
      leaves -= share;
    }
  }

  std::mt19937_64& random_;
  const TreeLimits& limits_;
  std::vector<int64_t> preorder_;
};

// Where the subtree that starts at `begin` ends.
inline size_t subtree_end(const std::vector<int64_t>& tree, size_t begin) {
  int64_t missing = 1;
  while (missing > 0) missing += std::max<int64_t>(tree[begin++], 0) - 1;
  return begin;
}

// Smaller batches to try when one fails: without some trees, with a tree replaced by one of its subtrees or robbed
// of one.
inline rc::Seq<TreeBatch> smaller_batches(const TreeBatch& batch) {
  std::vector<TreeBatch> smaller;
  const auto& trees = batch.trees;
  for (size_t count = trees.size() / 2; count > 0; count /= 2) {
    for (size_t begin = 0; begin + count <= trees.size(); begin += count) {
      smaller.push_back(batch);
      auto& rest = smaller.back().trees;
      rest.erase(rest.begin() + static_cast<int64_t>(begin), rest.begin() + static_cast<int64_t>(begin + count));
    }
  }
  for (size_t t = 0; t < trees.size(); ++t) {
    const auto& tree = trees[t];
    std::vector<size_t> open;  // begins of the nodes around the present one
    for (size_t i = 1; i < tree.size(); ++i) {
      while (!open.empty() && subtree_end(tree, open.back()) <= i) open.pop_back();
      const size_t parent = open.empty() ? 0 : open.back();
      const auto begin = tree.begin() + static_cast<int64_t>(i);
      const auto end = tree.begin() + static_cast<int64_t>(subtree_end(tree, i));
      if (parent == 0) {
        smaller.push_back(batch);
        smaller.back().trees[t].assign(begin, end);
      }
      if (tree[parent] > 1) {
        smaller.push_back(batch);
        auto& robbed = smaller.back().trees[t];
        robbed.erase(robbed.begin() + (begin - tree.begin()), robbed.begin() + (end - tree.begin()));
        --robbed[parent];
      }
      if (tree[i] > 0) open.push_back(i);
    }
  }
  return rc::seq::fromContainer(std::move(smaller));
}

inline rc::Gen<TreeBatch> tree_batches(int64_t num_trees = kTreesPerBatch, TreeLimits limits = {}) {
  return [=](const rc::Random& source, int) {
    std::mt19937_64 random(rc::Random(source).next());
    TreeBatch batch;
    for (int64_t t = 0; t < num_trees; ++t) batch.trees.push_back(RandomTree(random, limits).draw());
    return rc::shrinkable::shrinkRecur(std::move(batch), &smaller_batches);
  };
}

// A seed for the numbers of a case; it is not shrunk.
inline rc::Gen<uint64_t> seeds() {
  return [](const rc::Random& source, int) { return rc::shrinkable::just(rc::Random(source).next()); };
}

}  // namespace ramify::testing
