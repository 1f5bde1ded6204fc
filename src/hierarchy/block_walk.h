// The order of work for kernels that run as independent blocks of threads, which can wait for each other only between
// launches (CUDA).
//
// A *grove* is a run of neighbouring subtrees with small families, done 16 rows at a time (a tile). A *twig* is a
// subtree that lies in one tile and is finished there; to what is above it is one family of leaves. Tiles of leaves are
// independent of each other, but for those of a family that is wider than a tile: they come in *tile blocks*. What is
// above the twigs of a grove is done by one block of threads, round by round. What is above groves, or does not fit, is
// the *crown*: its families are done in *stages*. The *units* of a stage are independent of each other; a block walks
// the *rounds* of a unit, families whose children are finished, one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ramify/forest.h"

namespace ramify {

// A node of the contracted forest (contraction.h).
struct BlockNode {
  int64_t first_child = 0;
  int64_t num_children = 0;
  int64_t size = 0;        // leaves below it
  int64_t first_leaf = 0;  // its own number for a leaf
  int64_t parent = -1;
  int64_t slot = -1;  // of an inner node of the crown and of a grove's root: where its row lies
  int64_t climb =
      -1;  // of an inner node: where the numbers of its leaves begin, of all pairs of a leaf and an ancestor

  bool is_leaf() const { return num_children == 0; }
};

struct BlockRound {
  int64_t family_begin = 0, family_end = 0;  // into families
  int64_t member_begin = 0, member_end = 0;  // into members: the children of these families
};

struct BlockUnit {
  int64_t round_begin = 0, round_end = 0;
};

// 64 children of a family of the crown that has more than a warp's lanes, from the begin-th on. Such a family is a
// unit.
struct WideTile {
  int64_t family = 0, begin = 0;

  bool operator==(const WideTile&) const = default;
};
inline constexpr int64_t kWidestNarrowFamily = 32, kWideTile = 64;

// Where a stage begins.
struct BlockStage {
  int64_t unit = 0, wide_tile = 0;

  bool operator==(const BlockStage&) const = default;
};

// Rows and keys are counted from the grove's first leaf, or from its first place (see GrovePlace).
struct GroveTile {
  int32_t row = 0, num_rows = 0;
  int32_t key = 0;  // the families of these rows lie in these keys
  int16_t num_keys = 0;
  int16_t num_levels = 1;  // of its twigs, most in one
};

// Those of leaves are the roots of twigs, with all of the twig's leaves, and families of leaves wider than a tile.
struct GroveFamily {
  int32_t begin = 0, end = 0;  // its children: rows, or places
  int32_t place = -1;          // where its own mean goes inside the grove; -1: it is a root of the grove
  int32_t size = 0;            // leaves below it
  int64_t slot = -1;           // of a root of the grove
  int64_t tree_root = -1;      // the number of the root, where it is one of a tree
};

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTwigLevels = 4;  // of families, most in a twig

// A leaf's family: its rows, its number and its place (-1: a root), counted as those of GroveFamily. In a twig, for
// each level: the rows of the tile, a bit each, that are with it below a family of at most that height; itself where
// there is none.
struct LeafSight {
  uint16_t begin = 0, end = 0;
  uint16_t family = 0;
  int16_t place = -1;
  std::array<uint16_t, kTwigLevels> blocks = {};

  bool operator==(const LeafSight&) const = default;
};

// A row inside a grove: a child of a family that has inner nodes. The rows of a tile begin at a multiple of kTileRows;
// those between have family -1.
struct GrovePlace {
  uint16_t begin = 0, end = 0;  // the places of the family that it belongs to,
  int16_t family = -1;          // its number
  int16_t family_place = -1;    // and its place
  int16_t leaf_row = -1;        // for a leaf: its row
  int16_t own_family = -1;      // for an inner node: the family of its children
  int32_t size = 1;
};

struct GroveRound {
  int32_t place_begin = 0, place_end = 0;
  int32_t family_begin = 0, family_end = 0;
  int32_t tile_begin = 0, tile_end = 0;
};

struct BlockGrove {
  int64_t leaf_begin = 0;
  int64_t tile_begin = 0, family_begin = 0, place_begin = 0, round_begin = 0;
  int32_t num_leaf_tiles = 0, num_leaf_families = 0, num_places = 0, num_rounds = 0;
  int32_t num_tiles = 0, num_families = 0;  // of leaves and places
  int32_t is_whole = 0;                     // 1: its roots are roots of trees
  int32_t has_leaf_places = 0;              // 1: leaves are among its places
};

// Tiles of leaves for a block of threads: neighbours of one grove, of a wide family all of them.
struct TileBlock {
  int64_t tile = 0;  // the first
  int32_t grove = 0;
  int16_t num_tiles = 0;
  int16_t has_wide = 0;  // 1: a family has more than one tile

  bool operator==(const TileBlock&) const = default;
};

// What a leaf of a grove adds to its own result: its family's place (its own where it is one) and the slot of the
// grove's root, of all places and slots; -1: there is none.
struct LeafAbove {
  int32_t place = -1, slot = -1;

  bool operator==(const LeafAbove&) const = default;
};

struct GroveLimits {
  int64_t tiles = 0;  // of leaves
  int64_t places = 0;
};
// Several subtrees share a grove as long as that has no more than kSharedGroves.
inline constexpr GroveLimits kNoGroves = {0, 0}, kSharedGroves = {16, 80}, kGroves = {256, 640};
inline constexpr int64_t kSmallGroveTiles = 32;  // of leaves
inline constexpr int64_t kUnitRows = 16;         // children of a unit's families, unless it is a single one

struct BlockTotals {
  int64_t num_nodes = 0, num_leaves = 0, num_roots = 0;
  int64_t num_slots = 0;
  int64_t num_climbs = 0;                     // pairs of a leaf and an ancestor
  int64_t grove_places = 0, round_tiles = 0;  // most in one grove; most tiles of places in one round
  int64_t block_tiles = 0;                    // most in a tile block
  int64_t has_wide = 0;                       // 1: a family of leaves in a grove has more than one tile
  int64_t has_twigs = 0;                      // 1: a tile of leaves in a grove is not just one family below others
  int64_t has_above = 0;                      // 1: a leaf of a grove has something above it
  int64_t tile_stride = 0;                    // not 0: from the first tile of a grove to that of the next
};

// Views of the arrays below: on the device all but `stage_begin`, which the host walks.
struct BlockWalkView {
  BlockTotals totals;
  std::span<const BlockStage> stage_begin;
  std::span<const BlockNode> nodes;
  std::span<const int64_t> families, members, leaf_nodes, bare_leaves;
  std::span<const BlockRound> rounds;
  std::span<const BlockUnit> units;
  std::span<const WideTile> wide_tiles;
  std::span<const BlockGrove> groves;
  std::span<const GroveTile> tiles;
  std::span<const GroveFamily> grove_families;
  std::span<const GrovePlace> places;
  std::span<const GroveRound> grove_rounds;
  std::span<const TileBlock> tile_blocks;
  std::span<const LeafSight> leaf_sights;  // of each leaf in a family of leaves of a grove
  std::span<const LeafAbove> leaf_above;
};

struct BlockWalk {
  BlockTotals totals;
  std::vector<BlockStage> stage_begin = {{}};
  std::vector<BlockNode> nodes;
  std::vector<int64_t> families, members, leaf_nodes, bare_leaves;
  std::vector<BlockRound> rounds;
  std::vector<BlockUnit> units;
  std::vector<WideTile> wide_tiles;
  std::vector<BlockGrove> groves;
  std::vector<GroveTile> tiles;
  std::vector<GroveFamily> grove_families;
  std::vector<GrovePlace> places;
  std::vector<GroveRound> grove_rounds;
  std::vector<TileBlock> tile_blocks;
  std::vector<LeafSight> leaf_sights;
  std::vector<LeafAbove> leaf_above;

  BlockWalkView view() const {
    return {totals,         stage_begin, nodes,        families,    members,     leaf_nodes,
            bare_leaves,    rounds,      units,        wide_tiles,  groves,      tiles,
            grove_families, places,      grove_rounds, tile_blocks, leaf_sights, leaf_above};
  }
};

// Takes a contracted forest: every inner node has at least two children.
BlockWalk make_block_walk(const Forest& contracted, GroveLimits limits);

}  // namespace ramify
