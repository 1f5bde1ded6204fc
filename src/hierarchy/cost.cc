#include "ramify/cost.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ramify {
namespace {

void check(const AttentionShape& shape) {
  const auto require = [](int64_t value, const char* name) {
    if (value < 1) {
      throw std::invalid_argument(std::string("flops: ") + name + " is " + std::to_string(value) +
                                  "; expected at least 1");
    }
  };
  require(shape.tokens, "tokens");
  if (shape.tokens > kMaxLeaves) {
    throw std::invalid_argument("flops: tokens is " + std::to_string(shape.tokens) + "; expected at most " +
                                std::to_string(kMaxLeaves));
  }
  require(shape.width, "width");
  require(shape.heads, "heads");
}

double paper_unit(const AttentionShape& shape) {
  return 4.0 * shape.width + shape.heads;
}

// A pair of siblings costs a dot product and a weighted addition of vectors that are `width` long in all
// heads.
double pair_multiply_adds(const AttentionShape& shape, double pairs) {
  return pairs * 2.0 * shape.width;
}

// Beside the pairs: means of q, k, v on the way up, and y + pi·w·a on the way down, once a node and entry.
double true_multiply_adds(const AttentionShape& shape, double pairs, double edges) {
  return pair_multiply_adds(shape, pairs) + 4.0 * shape.width * edges;
}

double square(double x) {
  return x * x;
}

// Table 3 of the paper counts every window as full, one that is alone on its level as what it holds, and the
// root.
double paper_pairs(int64_t tokens, const Branching& branching) {
  double pairs = 1;
  int64_t n = tokens;
  const auto num_sizes = static_cast<int64_t>(branching.sizes.size());
  for (int64_t l = 0; l < num_sizes || (branching.repeat_last && n > 1); ++l) {
    const int64_t size = branching.sizes[std::min(l, num_sizes - 1)];
    const int64_t families = n / size + (n % size != 0);
    pairs += families > 1 ? static_cast<double>(families) * square(static_cast<double>(size))
                          : square(static_cast<double>(n));
    n = families;
  }
  return n > 1 ? pairs + square(static_cast<double>(n)) : pairs;
}

}  // namespace

AttentionCost flat_cost(const AttentionShape& shape) {
  check(shape);
  AttentionCost cost;
  cost.paper_flops = square(static_cast<double>(shape.tokens)) * paper_unit(shape);
  cost.score_pairs = shape.tokens * shape.tokens;
  cost.multiply_adds = pair_multiply_adds(shape, square(static_cast<double>(shape.tokens)));
  return cost;
}

AttentionCost hierarchical_cost(const AttentionShape& shape, const Branching& branching) {
  check(shape);
  AttentionCost cost;
  windows(std::vector<int64_t>{}, branching);  // for its checks
  cost.paper_flops = paper_pairs(shape.tokens, branching) * paper_unit(shape);

  // Level by level as `windows` builds them: n nodes in full groups of `size`, a short one, and the root over the rest.
  double edges = 0;
  int64_t n = shape.tokens;
  const auto num_sizes = static_cast<int64_t>(branching.sizes.size());
  for (int64_t l = 0; n > 1; ++l) {
    const bool rest = l >= num_sizes && !branching.repeat_last;
    const int64_t size = rest ? n : branching.sizes[std::min(l, num_sizes - 1)];
    const int64_t full = n / size, left = n % size;
    cost.score_pairs += full * size * (size - 1) + left * (left - 1);
    edges += static_cast<double>(n);
    n = full + (left != 0);
  }
  cost.multiply_adds = true_multiply_adds(shape, static_cast<double>(cost.score_pairs), edges);
  return cost;
}

AttentionCost forest_cost(const AttentionShape& shape, const Forest& forest) {
  double pairs = 0, ordered = 0, edges = 0;
  for (int64_t node = 0; node < forest.num_nodes(); ++node) {
    const auto children = static_cast<double>(forest.num_children(node));
    pairs += square(children);
    ordered += children * (children - 1);
    edges += children;
  }
  const int64_t roots = forest.num_levels() > 0 ? forest.level_begin()[1] : 0;
  AttentionCost cost;
  cost.paper_flops = (pairs + static_cast<double>(roots)) * paper_unit(shape);
  cost.score_pairs = static_cast<int64_t>(ordered);
  cost.multiply_adds = true_multiply_adds(shape, ordered, edges);
  return cost;
}

}  // namespace ramify
