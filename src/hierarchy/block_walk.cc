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
    find_leaf_families();
    find_groves();
    number_slots();
    add_groves();
    add_stages();
    return std::move(walk_);
  }

 private:
  // Where the leaves of neighbouring families go, as add_tiles() puts them.
  struct Packing {
    int64_t tiles = 0, free = 0, next_leaf = -1;

    void add(const BlockNode& family) {
      const int64_t width = family.num_children;
      if (width > free || family.first_leaf != next_leaf) {
        tiles += (width + kTileRows - 1) / kTileRows;
        free = width > kTileRows ? 0 : kTileRows;
      }
      free -= std::min(width, free);
      next_leaf = family.first_leaf + width;
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
    }
    walk_.leaf_nodes.assign(forest_.leaf_nodes().begin(), forest_.leaf_nodes().end());
    walk_.totals.num_nodes = num_nodes(), walk_.totals.num_leaves = forest_.num_leaves();
    walk_.totals.num_roots = forest_.num_levels() > 0 ? forest_.level_begin()[1] : 0;
    for (int64_t n = 0; n < walk_.totals.num_roots; ++n) {
      if (walk_.nodes[n].is_leaf()) walk_.bare_leaves.push_back(n);
    }
  }

  // Families of leaves alone, by their first leaf.
  void find_leaf_families() {
    for (int64_t n = 0; n < num_nodes(); ++n) {
      const BlockNode& node = walk_.nodes[n];
      if (!node.is_leaf() && node.size == node.num_children) leaf_families_.push_back(n);
    }
    std::sort(leaf_families_.begin(), leaf_families_.end(),
              [&](int64_t a, int64_t b) { return walk_.nodes[a].first_leaf < walk_.nodes[b].first_leaf; });
  }

  int64_t tiles_below(const BlockNode& node) const {
    const auto before = [&](int64_t n, int64_t leaf) { return walk_.nodes[n].first_leaf < leaf; };
    auto family = std::lower_bound(leaf_families_.begin(), leaf_families_.end(), node.first_leaf, before);
    Packing packing;
    for (; family != leaf_families_.end() && walk_.nodes[*family].first_leaf < node.first_leaf + node.size; ++family) {
      packing.add(walk_.nodes[*family]);
      if (packing.tiles > limits_.tiles) break;
    }
    return packing.tiles;
  }

  // Which nodes lie in groves, and how many places each needs.
  void find_groves() {
    in_grove_.assign(num_nodes(), 0), num_places_.assign(num_nodes(), 0);
    for (int64_t n = num_nodes() - 1; n >= 0; --n) {
      const BlockNode& node = walk_.nodes[n];
      if (node.is_leaf() || node.size > limits_.tiles * kTileRows) continue;
      const bool of_leaves = node.size == node.num_children;
      if (node.num_children > (of_leaves ? kWidestLeafFamily : kTileRows)) continue;
      int64_t places = of_leaves ? 0 : node.num_children;
      bool fits = true;
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        fits = fits && (walk_.nodes[c].is_leaf() || in_grove_[c]);
        places += num_places_[c];
      }
      if (!fits || places > limits_.places || tiles_below(node) > limits_.tiles) continue;
      in_grove_[n] = 1, num_places_[n] = places;
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
    walk_.leaf_families.assign(in_groves_anywhere() ? walk_.totals.num_leaves : 0, -1);
    walk_.totals.grove_tiles = limits_.tiles;
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
      run_packing_ = {}, run_places_ = 0;
    } else {
      const BlockNode& last = walk_.nodes[roots[end - 1]];
      if (last.first_leaf + last.size != next.first_leaf || (last.parent < 0) != (next.parent < 0)) return false;
      // large groves are for large trees: a block of many small ones would only wait longer
      if (run_packing_.tiles >= kSmallGroves.tiles) return false;
    }
    Packing packing = run_packing_;
    for_leaf_families(next, [&](const BlockNode& family) { packing.add(family); });
    const int64_t places = run_places_ + num_places_[roots[end]];
    const int64_t most_tiles = end == begin ? limits_.tiles : std::min(limits_.tiles, kSmallGroves.tiles);
    if (end > begin && (packing.tiles > most_tiles || places > limits_.places)) return false;
    run_packing_ = packing, run_places_ = places;
    return true;
  }

  template <class Visit>
  void for_leaf_families(const BlockNode& node, const Visit& visit) const {
    const auto before = [&](int64_t n, int64_t leaf) { return walk_.nodes[n].first_leaf < leaf; };
    auto family = std::lower_bound(leaf_families_.begin(), leaf_families_.end(), node.first_leaf, before);
    for (; family != leaf_families_.end() && walk_.nodes[*family].first_leaf < node.first_leaf + node.size; ++family) {
      visit(walk_.nodes[*family]);
    }
  }

  // The families below the roots: those of leaves first, then by rounds.
  std::vector<std::vector<int64_t>> families_by_round(std::span<const int64_t> roots) const {
    std::vector<std::vector<int64_t>> rounds;
    std::vector<int64_t> order(roots.begin(), roots.end());  // parents before children
    for (size_t i = 0; i < order.size(); ++i) {
      const BlockNode& node = walk_.nodes[order[i]];
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        if (!walk_.nodes[c].is_leaf()) order.push_back(c);
      }
    }
    std::vector<int64_t> round(order.size());
    std::vector<std::pair<int64_t, size_t>> index(order.size());
    for (size_t i = 0; i < order.size(); ++i) index[i] = {order[i], i};
    std::sort(index.begin(), index.end());
    const auto place_of = [&](int64_t n) {
      return std::lower_bound(index.begin(), index.end(), std::pair<int64_t, size_t>{n, 0})->second;
    };
    for (size_t i = order.size(); i-- > 0;) {
      const BlockNode& node = walk_.nodes[order[i]];
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        if (!walk_.nodes[c].is_leaf()) round[i] = std::max(round[i], round[place_of(c)] + 1);
      }
      rounds.resize(std::max<size_t>(rounds.size(), round[i] + 1));
      rounds[round[i]].push_back(order[i]);
    }
    for (auto& families : rounds) {
      std::sort(families.begin(), families.end(),
                [&](int64_t a, int64_t b) { return walk_.nodes[a].first_leaf < walk_.nodes[b].first_leaf; });
    }
    return rounds;
  }

  void add_grove(std::span<const int64_t> roots) {
    const BlockNode &first = walk_.nodes[roots.front()], &last = walk_.nodes[roots.back()];
    BlockGrove grove;
    grove.leaf_begin = first.first_leaf;
    grove.num_leaves = static_cast<int32_t>(last.first_leaf + last.size - first.first_leaf);
    grove.tile_begin = static_cast<int64_t>(walk_.tiles.size());
    grove.family_begin = static_cast<int64_t>(walk_.grove_families.size());
    grove.place_begin = static_cast<int64_t>(walk_.places.size());
    grove.round_begin = static_cast<int64_t>(walk_.grove_rounds.size());
    grove.is_whole = first.parent < 0;
    const auto rounds = families_by_round(roots);
    std::vector<std::pair<int64_t, int32_t>> own_family;  // node, its family
    for (size_t r = 0; r < rounds.size(); ++r) add_round(grove, rounds[r], r == 0, own_family);
    grove.num_rounds = static_cast<int32_t>(rounds.size()) - 1;
    grove.num_places = static_cast<int32_t>(walk_.places.size() - grove.place_begin);
    walk_.totals.grove_places = std::max<int64_t>(walk_.totals.grove_places, grove.num_places);
    walk_.groves.push_back(grove);
    if (grove.is_whole) return;
    for (const int64_t n : roots) {
      walk_.grove_roots.push_back({walk_.nodes[n].first_leaf, walk_.nodes[n].size, walk_.nodes[n].slot});
    }
  }

  void add_round(BlockGrove& grove, const std::vector<int64_t>& families, bool of_leaves,
                 std::vector<std::pair<int64_t, int32_t>>& own_family) {
    const auto num_families = [&] {
      return static_cast<int32_t>(walk_.grove_families.size() - grove.family_begin);
    };
    const auto num_places = [&] { return static_cast<int32_t>(walk_.places.size() - grove.place_begin); };
    const auto num_tiles = [&] { return static_cast<int32_t>(walk_.tiles.size() - grove.tile_begin); };
    GroveRound round;
    round.family_begin = num_families(), round.place_begin = num_places(), round.tile_begin = num_tiles();
    for (const int64_t n : families) {
      const BlockNode& node = walk_.nodes[n];
      GroveFamily family;
      family.size = static_cast<int32_t>(node.size);
      family.begin = of_leaves ? static_cast<int32_t>(node.first_leaf - grove.leaf_begin) : num_places();
      family.end = family.begin + static_cast<int32_t>(node.num_children);
      if (is_grove_root(n)) {
        family.slot = node.slot;
        if (node.parent < 0) family.tree_root = n;
      }
      const int32_t number = num_families();
      for (int64_t c = node.first_child; c < node.first_child + node.num_children; ++c) {
        const BlockNode& child = walk_.nodes[c];
        if (of_leaves) {
          walk_.leaf_families[child.first_leaf] = number;
          continue;
        }
        GrovePlace place;
        place.family = number, place.size = static_cast<int32_t>(child.size);
        if (child.is_leaf()) {
          place.leaf_row = static_cast<int32_t>(child.first_leaf - grove.leaf_begin);
        } else {
          for (const auto& [other, its_family] : own_family) {
            if (other == c) place.own_family = its_family;
          }
          walk_.grove_families[grove.family_begin + place.own_family].place = num_places();
        }
        walk_.places.push_back(place);
      }
      own_family.push_back({n, number});
      walk_.grove_families.push_back(family);
      add_tiles(grove, family, round.tile_begin);
    }
    if (of_leaves) {
      grove.num_leaf_families = num_families(), grove.num_leaf_tiles = num_tiles();
      return;
    }
    round.family_end = num_families(), round.place_end = num_places(), round.tile_end = num_tiles();
    walk_.grove_rounds.push_back(round);
  }

  // Into the last tile, where the family follows what is there and has room, or into new ones.
  void add_tiles(const BlockGrove& grove, const GroveFamily& family, int64_t first_tile) {
    const int32_t width = family.end - family.begin;
    const auto rows = static_cast<int32_t>(kTileRows);
    if (static_cast<int64_t>(walk_.tiles.size()) > grove.tile_begin + first_tile) {
      GroveTile& last = walk_.tiles.back();
      if (last.num_keys <= rows && last.row + last.num_rows == family.begin && last.num_rows + width <= rows) {
        last.num_rows += width, last.num_keys += width;
        return;
      }
    }
    if (width <= rows) {
      walk_.tiles.push_back({family.begin, width, family.begin, width});
      return;
    }
    for (int32_t row = family.begin; row < family.end; row += rows) {
      walk_.tiles.push_back({row, std::min(rows, family.end - row), family.begin, width});
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
      if (new_stage) walk_.stage_begin.push_back(num_units);
      rows += weight[n];
      unit[n] = num_units;
    }
    if (!roots.empty()) walk_.stage_begin.push_back(++num_units);
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

  const Forest& forest_;
  const GroveLimits limits_;
  BlockWalk walk_;
  std::vector<int64_t> leaf_families_, num_places_;
  std::vector<char> in_grove_;
  Packing run_packing_;
  int64_t run_places_ = 0;
};

}  // namespace

BlockWalk make_block_walk(const Forest& forest, GroveLimits limits) {
  return BlockWalkBuilder(forest, limits).build();
}

BlockWalk make_block_walk_with_groves(const Forest& forest) {
  BlockWalk small = make_block_walk(forest, kSmallGroves);
  if (small.grove_roots.empty()) return small;
  BlockWalk large = make_block_walk(forest, kLargeGroves);
  return large.units.empty() ? large : small;
}

}  // namespace ramify
