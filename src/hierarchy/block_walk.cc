#include "hierarchy/block_walk.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace ramify {
namespace {

constexpr int64_t kWidestLeafFamily = 16 * kTileRows;

class BlockWalkBuilder {
 public:
  BlockWalkBuilder(const Forest& forest, GroveLimits limits) : forest_(forest), limits_(limits) {}

  BlockWalk build() && {
    copy_nodes();
    find_twigs();
    find_groves();
    number_slots();
    add_groves();
    spread_tiles();
    add_tile_blocks();
    add_stages();
    return std::move(walk_);
  }

 private:
  // Puts families into tiles, in order: small neighbouring ones of one tree share a tile, so that NaN stays in its
  // tree.
  struct Packing {
    int64_t tiles = 0, free = 0, next_row = -1, tree = -1;

    // Whether the family begins a new tile.
    bool add(int64_t row, int64_t width, int64_t its_tree) {
      const bool is_new = width > free || row != next_row || its_tree != tree;
      if (is_new) {
        tiles += (width + kTileRows - 1) / kTileRows;
        free = width > kTileRows ? 0 : kTileRows;
      }
      free -= std::min(width, free);
      next_row = row + width, tree = its_tree;
      return is_new;
    }
  };

  int64_t num_nodes() const { return static_cast<int64_t>(walk_.nodes.size()); }

  void copy_nodes() {
    const std::vector<int64_t> sizes = forest_.leaf_counts(), parents = forest_.parents();
    walk_.nodes.resize(forest_.num_nodes());
    for (int64_t n = 0; n < num_nodes(); ++n) {
      BlockNode& node = walk_.nodes[n];
      node.first_child = forest_.first_child()[n], node.num_children = forest_.num_children(n);
      assert(node.num_children != 1);
      node.size = sizes[n], node.first_leaf = forest_.first_leaf()[n], node.parent = parents[n];
      tree_.push_back(node.parent < 0 ? n : tree_[node.parent]);
      if (!node.is_leaf()) node.climb = walk_.totals.num_climbs, walk_.totals.num_climbs += node.size;
    }
    own_family_.assign(num_nodes(), -1);
    walk_.leaf_nodes.assign(forest_.leaf_nodes().begin(), forest_.leaf_nodes().end());
    walk_.totals.num_nodes = num_nodes(), walk_.totals.num_leaves = forest_.num_leaves();
    walk_.totals.num_roots = forest_.num_levels() > 0 ? forest_.level_begin()[1] : 0;
    for (int64_t n = 0; n < walk_.totals.num_roots; ++n) {
      if (walk_.nodes[n].is_leaf()) walk_.bare_leaves.push_back(n);
    }
  }

  // Twigs, and families of leaves that are wider, by their first leaf; and the rounds of all other families.
  void find_twigs() {
    height_.assign(num_nodes(), 0), round_.assign(num_nodes(), 0);
    std::vector<char> is_small(num_nodes(), 0);  // fits a tile
    for (int64_t n = num_nodes() - 1; n >= 0; --n) {
      const BlockNode& node = walk_.nodes[n];
      const int64_t parent = node.parent;
      if (!node.is_leaf()) {
        is_small[n] = node.size <= kTileRows && height_[n] <= kTwigLevels;
        if (is_small[n] || node.size == node.num_children) round_[n] = 0;
      }
      if (parent < 0) continue;
      height_[parent] = std::max(height_[parent], height_[n] + 1);
      round_[parent] = std::max(round_[parent], round_[n] + 1);
    }
    for (int64_t n = 0; n < num_nodes(); ++n) {
      const BlockNode& node = walk_.nodes[n];
      if (node.is_leaf() || round_[n] > 0) continue;
      if (node.parent < 0 || !is_small[node.parent]) twigs_.push_back(n);
    }
    std::sort(twigs_.begin(), twigs_.end(),
              [&](int64_t a, int64_t b) { return walk_.nodes[a].first_leaf < walk_.nodes[b].first_leaf; });
  }

  int64_t tiles_below(const BlockNode& node) const {
    Packing packing;
    for_twigs(node, [&](int64_t n) { packing.add(walk_.nodes[n].first_leaf, walk_.nodes[n].size, tree_[n]); });
    return packing.tiles;
  }

  // Rows for all children of families with inner nodes, in tiles, round by round; the last tile ends with its rows.
  int64_t places_below(std::span<const int64_t> roots) const {
    const auto rounds = families_by_round(roots);
    int64_t tiles = 0, free = 0;
    for (size_t r = 1; r < rounds.size(); ++r) {
      Packing packing;
      for (const int64_t n : rounds[r]) packing.add(packing.next_row, walk_.nodes[n].num_children, tree_[n]);
      tiles += packing.tiles, free = packing.free;
    }
    return tiles * kTileRows - free;
  }

  void find_groves() {
    in_grove_.assign(num_nodes(), 0);
    for (int64_t n = num_nodes() - 1; n >= 0; --n) {
      const BlockNode& node = walk_.nodes[n];
      if (node.is_leaf() || node.size > limits_.tiles * kTileRows) continue;
      const bool of_leaves = node.size == node.num_children;
      if (node.num_children > (of_leaves ? kWidestLeafFamily : kTileRows)) continue;
      bool fits = true;
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        fits = fits && (walk_.nodes[c].is_leaf() || in_grove_[c]);
      }
      if (!fits || tiles_below(node) > limits_.tiles) continue;
      if (!of_leaves && places_below({&n, 1}) > limits_.places) continue;
      in_grove_[n] = 1;
    }
  }

  bool is_grove_root(int64_t n) const {
    return in_grove_[n] && (walk_.nodes[n].parent < 0 || !in_grove_[walk_.nodes[n].parent]);
  }

  void number_slots() {
    for (int64_t n = 0; n < num_nodes(); ++n) {
      const bool has_row = !walk_.nodes[n].is_leaf() && (!in_grove_[n] || is_grove_root(n));
      if (has_row) walk_.nodes[n].slot = walk_.totals.num_slots++;
    }
  }

  void add_groves() {
    const int64_t num_leaves = in_groves_anywhere() ? walk_.totals.num_leaves : 0;
    walk_.leaf_sights.assign(num_leaves, {}), walk_.leaf_above.assign(num_leaves, {});
    std::vector<int64_t> roots;
    for (int64_t n = 0; n < num_nodes(); ++n) {
      if (is_grove_root(n)) roots.push_back(n);
    }
    std::sort(roots.begin(), roots.end(),
              [&](int64_t a, int64_t b) { return walk_.nodes[a].first_leaf < walk_.nodes[b].first_leaf; });
    for (size_t begin = 0; begin < roots.size();) {
      size_t end = begin;
      while (end < roots.size() && continues(roots, begin, end)) ++end;
      add_grove({roots.data() + begin, end - begin});
      begin = end;
    }
  }

  bool in_groves_anywhere() const {
    return std::any_of(in_grove_.begin(), in_grove_.end(), [](char in) { return in != 0; });
  }

  // Whether the grove of roots [begin, end) can also take the next one.
  bool continues(const std::vector<int64_t>& roots, size_t begin, size_t end) {
    const BlockNode& next = walk_.nodes[roots[end]];
    if (end == begin) {
      run_packing_ = {};
    } else {
      const BlockNode& last = walk_.nodes[roots[end - 1]];
      if (last.first_leaf + last.size != next.first_leaf || (last.parent < 0) != (next.parent < 0)) return false;
    }
    Packing packing = run_packing_;
    for_twigs(next, [&](int64_t n) { packing.add(walk_.nodes[n].first_leaf, walk_.nodes[n].size, tree_[n]); });
    if (end > begin) {
      // large groves are for large trees: a block of many small ones would only wait longer
      if (packing.tiles > std::min(limits_.tiles, kSharedGroves.tiles)) return false;
      const int64_t places = places_below({roots.data() + begin, end + 1 - begin});
      if (places > std::min(limits_.places, kSharedGroves.places)) return false;
    }
    run_packing_ = packing;
    return true;
  }

  template <class Visit>
  void for_twigs(const BlockNode& node, const Visit& visit) const {
    const auto before = [&](int64_t n, int64_t leaf) { return walk_.nodes[n].first_leaf < leaf; };
    auto twig = std::lower_bound(twigs_.begin(), twigs_.end(), node.first_leaf, before);
    for (; twig != twigs_.end() && walk_.nodes[*twig].first_leaf < node.first_leaf + node.size; ++twig) visit(*twig);
  }

  // The families below the roots: twigs first, then by rounds, each by its first leaf.
  std::vector<std::vector<int64_t>> families_by_round(std::span<const int64_t> roots) const {
    std::vector<std::vector<int64_t>> rounds;
    std::vector<int64_t> order(roots.begin(), roots.end());
    for (size_t i = 0; i < order.size(); ++i) {
      const BlockNode& node = walk_.nodes[order[i]];
      const auto round = static_cast<size_t>(round_[order[i]]);
      rounds.resize(std::max(rounds.size(), round + 1));
      rounds[round].push_back(order[i]);
      if (round == 0) continue;
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        if (!walk_.nodes[c].is_leaf()) order.push_back(c);
      }
    }
    for (auto& families : rounds) {
      std::sort(families.begin(), families.end(),
                [&](int64_t a, int64_t b) { return walk_.nodes[a].first_leaf < walk_.nodes[b].first_leaf; });
    }
    return rounds;
  }

  void add_grove(std::span<const int64_t> roots) {
    const BlockNode& first = walk_.nodes[roots.front()];
    BlockGrove grove;
    grove.leaf_begin = first.first_leaf;
    grove.tile_begin = static_cast<int64_t>(walk_.tiles.size());
    grove.family_begin = static_cast<int64_t>(walk_.grove_families.size());
    grove.place_begin = static_cast<int64_t>(walk_.places.size());
    grove.round_begin = static_cast<int64_t>(walk_.grove_rounds.size());
    grove.is_whole = first.parent < 0;
    const auto rounds = families_by_round(roots);
    for (size_t r = 0; r < rounds.size(); ++r) add_round(grove, rounds[r], r == 0);
    grove.num_rounds = static_cast<int32_t>(rounds.size()) - 1;
    grove.num_places = static_cast<int32_t>(walk_.places.size() - grove.place_begin);
    grove.num_tiles = static_cast<int32_t>(walk_.tiles.size() - grove.tile_begin);
    grove.num_families = static_cast<int32_t>(walk_.grove_families.size() - grove.family_begin);
    BlockTotals& totals = walk_.totals;
    totals.grove_places = std::max<int64_t>(totals.grove_places, grove.num_places);
    if (grove.num_places > 0 || !grove.is_whole) totals.has_above = 1;
    see_families(grove);
    if (has_twigs(grove)) totals.has_twigs = 1;
    if (!grove.is_whole) see_roots(roots);
    walk_.groves.push_back(grove);
  }

  void add_round(BlockGrove& grove, const std::vector<int64_t>& families, bool of_leaves) {
    const auto num_families = [&] { return static_cast<int32_t>(walk_.grove_families.size() - grove.family_begin); };
    const auto num_places = [&] { return static_cast<int32_t>(walk_.places.size() - grove.place_begin); };
    const auto num_tiles = [&] { return static_cast<int32_t>(walk_.tiles.size() - grove.tile_begin); };
    // tiles of places begin at multiples of their rows, so that no tile reads what another writes
    const auto begin_tile = [&] {
      while (num_places() % kTileRows != 0) walk_.places.emplace_back();
    };
    if (!of_leaves) begin_tile();
    GroveRound round;
    round.family_begin = num_families(), round.place_begin = num_places(), round.tile_begin = num_tiles();
    Packing packing;
    for (const int64_t n : families) {
      const BlockNode& node = walk_.nodes[n];
      const auto width = static_cast<int32_t>(of_leaves ? node.size : node.num_children);
      const bool is_new = packing.add(of_leaves ? node.first_leaf : packing.next_row, width, tree_[n]);
      if (!of_leaves && is_new) begin_tile();
      GroveFamily family;
      family.size = static_cast<int32_t>(node.size);
      family.begin = of_leaves ? static_cast<int32_t>(node.first_leaf - grove.leaf_begin) : num_places();
      family.end = family.begin + width;
      if (is_grove_root(n)) {
        family.slot = node.slot;
        if (node.parent < 0) family.tree_root = n;
      }
      const int32_t number = num_families();
      own_family_[n] = number;
      const int64_t num_own = of_leaves ? 0 : node.num_children;
      for (int64_t c = node.first_child; c < node.first_child + num_own; ++c) {
        const BlockNode& child = walk_.nodes[c];
        GrovePlace place;
        place.begin = static_cast<uint16_t>(family.begin), place.end = static_cast<uint16_t>(family.end);
        place.family = static_cast<int16_t>(number), place.size = static_cast<int32_t>(child.size);
        if (child.is_leaf()) {
          place.leaf_row = static_cast<int16_t>(child.first_leaf - grove.leaf_begin);
          grove.has_leaf_places = 1;
        } else {
          place.own_family = static_cast<int16_t>(own_family_[c]);
          walk_.grove_families[grove.family_begin + place.own_family].place = num_places();
        }
        walk_.places.push_back(place);
      }
      walk_.grove_families.push_back(family);
      add_tiles(family, is_new);
      if (of_leaves && width <= kTileRows) add_twig(grove, n);
    }
    if (of_leaves) {
      grove.num_leaf_families = num_families(), grove.num_leaf_tiles = num_tiles();
      return;
    }
    round.family_end = num_families(), round.place_end = num_places(), round.tile_end = num_tiles();
    walk_.totals.round_tiles = std::max<int64_t>(walk_.totals.round_tiles, round.tile_end - round.tile_begin);
    walk_.grove_rounds.push_back(round);
  }

  bool has_twigs(const BlockGrove& grove) const {
    const auto tiles = std::span(walk_.tiles).subspan(grove.tile_begin, grove.num_leaf_tiles);
    const auto families = std::span(walk_.grove_families).subspan(grove.family_begin, grove.num_leaf_families);
    return families.size() > tiles.size() ||
           std::any_of(tiles.begin(), tiles.end(), [](const GroveTile& tile) { return tile.num_levels > 1; }) ||
           std::any_of(families.begin(), families.end(), [](const GroveFamily& family) { return family.place < 0; });
  }

  // What leaves see, and families' places, which are known only when the families above are.
  void see_families(const BlockGrove& grove) {
    for (int32_t f = 0; f < grove.num_leaf_families; ++f) {
      const GroveFamily& family = walk_.grove_families[grove.family_begin + f];
      for (int32_t row = family.begin; row < family.end; ++row) {
        LeafSight& sight = walk_.leaf_sights[grove.leaf_begin + row];
        sight.begin = static_cast<uint16_t>(family.begin), sight.end = static_cast<uint16_t>(family.end);
        sight.family = static_cast<uint16_t>(f), sight.place = static_cast<int16_t>(family.place);
        if (family.place < 0) continue;
        walk_.leaf_above[grove.leaf_begin + row].place = static_cast<int32_t>(grove.place_begin + family.place);
      }
    }
    for (size_t p = grove.place_begin; p < walk_.places.size(); ++p) {
      GrovePlace& place = walk_.places[p];
      if (place.family < 0) continue;
      if (place.leaf_row >= 0) walk_.leaf_above[grove.leaf_begin + place.leaf_row].place = static_cast<int32_t>(p);
      place.family_place = static_cast<int16_t>(walk_.grove_families[grove.family_begin + place.family].place);
    }
  }

  void see_roots(std::span<const int64_t> roots) {
    for (const int64_t n : roots) {
      const BlockNode& root = walk_.nodes[n];
      for (int64_t leaf = root.first_leaf; leaf < root.first_leaf + root.size; ++leaf) {
        walk_.leaf_above[leaf].slot = static_cast<int32_t>(root.slot);
      }
    }
  }

  static int32_t tiles_of_family(const GroveTile& tile) {
    return static_cast<int32_t>((tile.num_keys + kTileRows - 1) / kTileRows);
  }
  // Where all groves are small and not too different, each has room for as many tiles as the largest, so that a block
  // knows where its own are without reading anything.
  void spread_tiles() {
    int64_t stride = 0;
    for (const BlockGrove& grove : walk_.groves) {
      if (grove.num_leaf_tiles > kSmallGroveTiles) return;
      stride = std::max<int64_t>(stride, grove.num_tiles);
    }
    const size_t size = walk_.groves.size() * stride;
    if (size > 4 * walk_.tiles.size()) return;
    std::vector<GroveTile> tiles(size);
    auto to = tiles.begin();
    for (BlockGrove& grove : walk_.groves) {
      std::copy_n(walk_.tiles.begin() + grove.tile_begin, grove.num_tiles, to);
      grove.tile_begin = to - tiles.begin();
      to += stride;
    }
    walk_.tiles = std::move(tiles);
    walk_.totals.tile_stride = stride;
  }

  // Blocks of 4 tiles, of 8 where there are wide families, or of 16 where one has more than 8.
  void add_tile_blocks() {
    BlockTotals& totals = walk_.totals;
    int32_t widest = 1;
    for (const GroveTile& tile : walk_.tiles) widest = std::max(widest, tiles_of_family(tile));
    totals.block_tiles = widest == 1 ? 4 : widest <= 8 ? 8 : 16;
    totals.has_wide = widest > 1;
    for (size_t g = 0; g < walk_.groves.size(); ++g) {
      const BlockGrove& grove = walk_.groves[g];
      TileBlock block;
      const auto finish = [&] {
        if (block.num_tiles > 0) walk_.tile_blocks.push_back(block);
      };
      for (int32_t t = 0; t < grove.num_leaf_tiles;) {
        const int64_t tile = grove.tile_begin + t;
        const int32_t count = tiles_of_family(walk_.tiles[tile]);
        if (block.num_tiles == 0 || block.num_tiles + count > totals.block_tiles) {
          finish();
          block = {tile, static_cast<int32_t>(g)};
        }
        block.num_tiles += static_cast<int16_t>(count);
        if (count > 1) block.has_wide = 1;
        t += count;
      }
      finish();
    }
  }

  // A twig in the last tile: which rows its leaves see on each level.
  void add_twig(const BlockGrove& grove, int64_t root) {
    GroveTile& tile = walk_.tiles.back();
    tile.num_levels = std::max(tile.num_levels, static_cast<int16_t>(height_[root]));
    std::vector<int64_t> order = {root};
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t n = order[i];
      const BlockNode& node = walk_.nodes[n];
      const int64_t first = node.first_leaf - grove.leaf_begin - tile.row;
      const auto rows = static_cast<uint16_t>(((1 << node.size) - 1) << first);
      const int64_t end = n == root ? kTwigLevels : height_[node.parent] - 1;
      for (int64_t leaf = node.first_leaf; leaf < node.first_leaf + node.size; ++leaf) {
        auto& blocks = walk_.leaf_sights[leaf].blocks;
        for (int64_t level = std::max<int64_t>(height_[n] - 1, 0); level < end; ++level) blocks[level] = rows;
      }
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) order.push_back(c);
    }
  }

  void add_tiles(const GroveFamily& family, bool is_new) {
    const int32_t width = family.end - family.begin;
    const auto rows = static_cast<int32_t>(kTileRows);
    if (!is_new) {
      GroveTile& tile = walk_.tiles.back();
      tile.num_rows += width, tile.num_keys = static_cast<int16_t>(tile.num_rows);
    } else if (width <= rows) {
      walk_.tiles.push_back({family.begin, width, family.begin, static_cast<int16_t>(width)});
    } else {
      for (int32_t row = family.begin; row < family.end; row += rows) {
        walk_.tiles.push_back({row, std::min(rows, family.end - row), family.begin, static_cast<int16_t>(width)});
      }
    }
  }

  // The crown: a family is done in the stage of its children where their unit still has room, else in the next one.
  void add_stages() {
    std::vector<int64_t> stage(num_nodes(), -1), weight(num_nodes(), 1), round(num_nodes(), 0);
    std::vector<int64_t> crown;
    for (int64_t n = num_nodes() - 1; n >= 0; --n) {
      const BlockNode& node = walk_.nodes[n];
      if (node.is_leaf() || in_grove_[n]) continue;
      crown.push_back(n);
      int64_t last = 0;
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        last = std::max(last, stage[c]);
      }
      weight[n] = node.num_children;
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        if (stage[c] != last) continue;
        weight[n] += weight[c];
        round[n] = std::max(round[n], round[c] + 1);
      }
      stage[n] = last;
      if (round[n] > 0 && weight[n] > kUnitRows) stage[n] = last + 1, weight[n] = node.num_children, round[n] = 0;
    }
    // units: runs of neighbouring roots of one stage
    std::vector<int64_t> roots, unit(num_nodes(), -1);
    for (const int64_t n : crown) {
      const int64_t parent = walk_.nodes[n].parent;
      if (parent < 0 || stage[parent] > stage[n]) roots.push_back(n);
    }
    std::sort(roots.begin(), roots.end(), [&](int64_t a, int64_t b) {
      return std::tuple(stage[a], walk_.nodes[a].first_leaf) < std::tuple(stage[b], walk_.nodes[b].first_leaf);
    });
    int64_t num_units = 0, rows = 0;
    for (size_t i = 0; i < roots.size(); ++i) {
      const int64_t n = roots[i];
      const bool new_stage = i > 0 && stage[roots[i - 1]] != stage[n];
      if (i > 0 && (new_stage || rows + weight[n] > kUnitRows)) ++num_units, rows = 0;
      if (new_stage) walk_.stage_begin.push_back({num_units, num_wide_tiles()});
      rows += weight[n];
      add_wide_tiles(n);
      unit[n] = num_units;
    }
    if (!roots.empty()) walk_.stage_begin.push_back({++num_units, num_wide_tiles()});
    for (size_t i = crown.size(); i-- > 0;) {  // parents before children
      const int64_t n = crown[i];
      if (unit[n] < 0) unit[n] = unit[walk_.nodes[n].parent];
    }
    std::sort(crown.begin(), crown.end(), [&](int64_t a, int64_t b) {
      return std::tuple(unit[a], round[a], walk_.nodes[a].first_leaf) <
             std::tuple(unit[b], round[b], walk_.nodes[b].first_leaf);
    });
    walk_.units.resize(num_units);
    for (size_t i = 0; i < crown.size(); ++i) {
      const int64_t n = crown[i];
      const bool new_unit = i == 0 || unit[crown[i - 1]] != unit[n];
      const auto num_rounds = static_cast<int64_t>(walk_.rounds.size());
      if (new_unit) walk_.units[unit[n]].round_begin = num_rounds;
      if (new_unit || round[crown[i - 1]] != round[n]) {
        const auto member = static_cast<int64_t>(walk_.members.size());
        walk_.rounds.push_back({static_cast<int64_t>(i), 0, member, 0});
      }
      walk_.units[unit[n]].round_end = static_cast<int64_t>(walk_.rounds.size());
      walk_.families.push_back(n);
      const BlockNode& node = walk_.nodes[n];
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) walk_.members.push_back(c);
      walk_.rounds.back().family_end = static_cast<int64_t>(i) + 1;
      walk_.rounds.back().member_end = static_cast<int64_t>(walk_.members.size());
    }
  }

  int64_t num_wide_tiles() const { return static_cast<int64_t>(walk_.wide_tiles.size()); }
  void add_wide_tiles(int64_t n) {
    const int64_t width = walk_.nodes[n].num_children;
    if (width <= kWidestNarrowFamily) return;
    for (int64_t begin = 0; begin < width; begin += kWideTile) walk_.wide_tiles.push_back({n, begin});
  }

  const Forest& forest_;
  const GroveLimits limits_;
  BlockWalk walk_;
  std::vector<int64_t> twigs_, tree_;
  std::vector<int64_t> height_;      // levels of families below a node
  std::vector<int64_t> round_;       // 0: in a twig or a family of leaves, else after those of its children
  std::vector<int32_t> own_family_;  // of a node in a grove: the family of its children
  std::vector<char> in_grove_;
  Packing run_packing_;
};

}  // namespace

BlockWalk make_block_walk(const Forest& forest, GroveLimits limits) {
  return BlockWalkBuilder(forest, limits).build();
}

}  // namespace ramify
