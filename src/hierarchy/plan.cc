#include "hierarchy/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hierarchy/contraction.h"

namespace ramify {
namespace {

// Sizes of one class differ by less than a quarter, so a batch padded to its largest family wastes little.
int64_t size_class(int64_t size) {
  constexpr int64_t kExact = 4;
  static const double kStep = std::log(1.25);
  if (size <= kExact) return size;
  return kExact + 1 + static_cast<int64_t>(std::log(static_cast<double>(size) / (kExact + 1)) / kStep);
}

std::vector<NodeRow> node_rows(const Forest& original, const Contraction& contraction) {
  const std::vector<int64_t> sizes = contraction.forest.leaf_counts();
  const auto first_leaf = contraction.forest.first_leaf();
  const auto level_begin = original.level_begin();
  std::vector<NodeRow> rows(sizes.size());
  for (size_t n = 0; n < rows.size(); ++n) {
    const auto level = std::upper_bound(level_begin.begin(), level_begin.end(), contraction.top[n]);
    const int64_t depth = (level - level_begin.begin()) - 1;
    rows[n] = {sizes[n], first_leaf[n], contraction.top[n], std::max<int64_t>(depth - 1, 0)};
  }
  return rows;
}

// The families whose parents are nodes [begin, end), whose children's level starts at `end`.
std::vector<FamilyRow> families_below(const Forest& forest, const std::vector<NodeRow>& nodes, int64_t begin,
                                      int64_t end, Queries queries) {
  std::vector<FamilyRow> families;
  for (int64_t n = begin; n < end; ++n) {
    if (forest.is_leaf(n)) continue;
    FamilyRow family;
    family.parent = n - begin;
    family.first_slot = forest.first_child()[n] - end;
    family.num_slots = forest.num_children(n);
    const bool by_leaf = queries == Queries::leaves;
    family.first_query = by_leaf ? nodes[n].first_leaf : family.first_slot;
    family.num_queries = by_leaf ? nodes[n].size : family.num_slots;
    families.push_back(family);
  }
  return families;
}

// Where rows [first, first + count) of consecutive families begin if each follows the last and has `full`
// rows.
template <class First, class Count>
int64_t consecutive_begin(const FamilyRow* begin, const FamilyRow* end, int64_t full, First first, Count count) {
  for (const FamilyRow* row = begin; row != end; ++row) {
    if (count(*row) != full || first(*row) != first(*begin) + (row - begin) * full) return -1;
  }
  return first(*begin);
}

FamilyBatch describe_batch(const std::vector<FamilyRow>& families, size_t begin, size_t end) {
  const FamilyRow *first = families.data() + begin, *last = families.data() + end;
  FamilyBatch batch;
  batch.families = static_cast<int64_t>(end - begin);
  batch.family_begin = static_cast<int64_t>(begin);
  for (const FamilyRow* row = first; row != last; ++row) {
    batch.width = std::max(batch.width, row->num_slots);
    batch.queries = std::max(batch.queries, row->num_queries);
  }
  batch.parent_begin = consecutive_begin(
      first, last, 1, [](const FamilyRow& row) { return row.parent; }, [](const FamilyRow&) { return int64_t{1}; });
  batch.slot_begin = consecutive_begin(
      first, last, batch.width, [](const FamilyRow& row) { return row.first_slot; },
      [](const FamilyRow& row) { return row.num_slots; });
  batch.query_begin = consecutive_begin(
      first, last, batch.queries, [](const FamilyRow& row) { return row.first_query; },
      [](const FamilyRow& row) { return row.num_queries; });
  return batch;
}

// Sorts the families of a level into batches of one size class and appends them.
void add_batches(Plan& plan, const std::vector<FamilyRow>& families, Queries queries) {
  using SizeClass = std::pair<int64_t, int64_t>;
  std::vector<std::pair<SizeClass, int64_t>> order;  // ties keep the order of the level
  for (size_t f = 0; f < families.size(); ++f) {
    const bool by_leaf = queries == Queries::leaves;
    const SizeClass key = {size_class(families[f].num_slots), by_leaf ? size_class(families[f].num_queries) : 0};
    order.push_back({key, static_cast<int64_t>(f)});
  }
  std::sort(order.begin(), order.end());
  size_t batch_begin = plan.families.size();
  for (size_t i = 0; i < order.size(); ++i) {
    plan.families.push_back(families[order[i].second]);
    if (i + 1 == order.size() || order[i].first != order[i + 1].first) {
      plan.batches.push_back(describe_batch(plan.families, batch_begin, plan.families.size()));
      batch_begin = plan.families.size();
    }
  }
}

}  // namespace

Plan make_plan(const Forest& forest, Queries queries) {
  const Contraction contraction = contract(forest);
  const Forest& tree = contraction.forest;
  Plan plan;
  plan.nodes = node_rows(forest, contraction);
  for (int64_t l = 0; l < tree.num_levels(); ++l) {
    PlanLevel level;
    level.node_begin = tree.level_begin()[l];
    const int64_t node_end = tree.level_begin()[l + 1];
    level.num_nodes = node_end - level.node_begin;
    level.leaf_begin = static_cast<int64_t>(plan.leaves.size());
    for (int64_t n = level.node_begin; n < node_end; ++n) {
      if (tree.is_leaf(n)) {
        const int64_t leaf = tree.first_leaf()[n];
        plan.leaves.push_back({leaf, n - level.node_begin, forest.leaf_nodes()[leaf]});
      }
    }
    level.num_leaves = static_cast<int64_t>(plan.leaves.size()) - level.leaf_begin;

    level.batch_begin = static_cast<int64_t>(plan.batches.size());
    if (l > 0) {
      add_batches(plan, families_below(tree, plan.nodes, tree.level_begin()[l - 1], level.node_begin, queries),
                  queries);
    }
    level.batch_end = static_cast<int64_t>(plan.batches.size());
    plan.levels.push_back(level);
  }
  return plan;
}

}  // namespace ramify
