// The order of work for level-parallel implementations: the families of each level, batched by size so that
// padding stays small on ragged trees. Made once for a forest; linear in its nodes, whatever its depth.
#pragma once

#include <cstdint>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

// Who looks at the children of a family.
enum class Queries {
  nodes,   // the children themselves (their mean query)
  leaves,  // every leaf below the family
};

// Families of nearly the same size on one level. Rows of Plan::families from family_begin on; the ..._begin
// fields below say where the rows lie when they are consecutive and none is padded, and are -1 otherwise.
struct FamilyBatch {
  int64_t families = 0;
  int64_t width = 0;    // most children
  int64_t queries = 0;  // most queries
  int64_t family_begin = 0;
  int64_t parent_begin = -1;
  int64_t slot_begin = -1;
  int64_t query_begin = -1;
};

// One family. Parent and children are numbered inside their levels, queries as Queries says: children by
// their place in the level, leaves by their number in the forest. Both are consecutive.
struct FamilyRow {
  int64_t parent = 0;
  int64_t first_slot = 0;
  int64_t num_slots = 0;
  int64_t first_query = 0;
  int64_t num_queries = 0;
};

struct PlanLevel {
  int64_t node_begin = 0;
  int64_t num_nodes = 0;
  int64_t leaf_begin = 0;  // into Plan::leaves
  int64_t num_leaves = 0;
  int64_t batch_begin = 0;  // batches whose children are on this level
  int64_t batch_end = 0;
};

// A leaf where its level has it.
struct LeafRow {
  int64_t leaf = 0;           // number in the forest
  int64_t node = 0;           // place in its level
  int64_t position_node = 0;  // the original leaf, whose position it has towards itself
};

// A node of the contracted forest (contraction.h).
struct NodeRow {
  int64_t size = 0;  // leaves below it
  int64_t first_leaf = 0;
  int64_t position_node = 0;  // the original node whose position it has towards its siblings
  int64_t family_depth = 0;   // original depth of its family's parent: 0 for the children of a root
};

struct Plan {
  std::vector<PlanLevel> levels;
  std::vector<FamilyBatch> batches;
  std::vector<FamilyRow> families;
  std::vector<LeafRow> leaves;  // by level, left to right
  std::vector<NodeRow> nodes;
};

Plan make_plan(const Forest& forest, Queries queries);

}  // namespace ramify
