// How threads share a forest: they take groves and boughs, heads or families of the crown, runs of leaves, or trees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hwy/cache_control.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/wide_family.h"

namespace ramify::cpu {

using GroveStep = void (*)(const Call&, const Grove&, HeadRange, Scratch&);
using NodeStep = void (*)(const Call&, int64_t node, HeadRange, Scratch&);
using RunStep = void (*)(const Call&, const LeafRun&, HeadRange, Scratch&);
using TileStep = void (*)(const Call&, WideTile, HeadRange, Scratch&);
using PairStep = void (*)(const Call&, WidePair, HeadRange, Scratch&);

// What is done with one family of the crown: at once when it is narrow; by tiles or pairs of them, between steps for
// all of it, when it is wide. Null: nothing.
struct CrownStep {
  NodeStep narrow = nullptr;
  NodeStep before = nullptr;
  TileStep tiles = nullptr;
  PairStep pairs = nullptr;
  NodeStep after = nullptr;
};

// What tied attention does, forward or backward: leaves first, then leaves last.
struct UpAndDown {
  GroveStep groves_up;
  CrownStep crown_up, crown_down;
  GroveStep groves_down;
};

// Below this many multiply-adds threads would wait for each other longer than they work.
inline constexpr int64_t kSerialWork = int64_t{1} << 19;

// Multiply-adds of one head of a family, and as much again as its rows cost.
inline int64_t family_work(const Call& call, const WalkNode& node) {
  return node.num_children * (node.num_children + 4) * (call.dim + call.value_dim + call.position_dim);
}

// A thread that shares its work with no other.
inline Threads alone(int64_t thread) {
  return {1, [thread](int64_t count, const Task& task) { task(0, count, thread); }};
}

// Takes some heads through the forest, alone or with others.
class Walker {
 public:
  Walker(const Call& call, HeadRange heads, const Threads& threads) : call_(call), heads_(heads), threads_(threads) {}

  void groves(GroveStep step) const {
    const auto groves = call_.p.walk.groves;
    share(static_cast<int64_t>(groves.size()), [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin; i < end; ++i) step(call_, groves[i], heads_, call_.scratch[thread]);
    });
  }

  void up_and_down(const UpAndDown& steps) const {
    if (takes_boughs()) {
      boughs([&](const Bough& bough, Scratch& scratch) {
        bough_up(bough, steps, scratch);
        if (bough.is_whole) bough_down(bough, steps, scratch);
      });
    } else {
      groves(steps.groves_up);
    }
    crown(steps.crown_up, steps.crown_down);
    if (takes_boughs()) {
      boughs([&](const Bough& bough, Scratch& scratch) {
        if (!bough.is_whole) bough_down(bough, steps, scratch);
      });
    } else {
      groves_below(steps.groves_down);
    }
  }

  void runs(RunStep step) const {
    const auto runs = call_.p.walk.runs;
    share(static_cast<int64_t>(runs.size()), [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin; i < end; ++i) step(call_, runs[i], heads_, call_.scratch[thread]);
    });
  }

  // Whether there are enough heads for threads to share them.
  bool has_many_heads() const { return num_heads() >= 2 * threads_.count; }

  // Some heads each, alone with them.
  template <class Steps>
  void by_heads(const Steps& steps) const {
    share(num_heads(), [&](int64_t begin, int64_t end, int64_t thread) {
      const Threads self = alone(thread);
      steps(Walker(call_, {heads_.key_begin + begin, heads_.key_begin + end}, self));
    });
  }

  // All nodes of the crown, parents first or last; threads share heads.
  enum class Direction { up, down };
  void crown_nodes(NodeStep step, Direction direction) const {
    const auto nodes = call_.p.walk.crown;
    share(nodes.empty() ? 0 : num_heads(), [&](int64_t begin, int64_t end, int64_t thread) {
      for (size_t i = 0; i < nodes.size(); ++i) {
        const int64_t node = nodes[direction == Direction::down ? i : nodes.size() - 1 - i];
        step(call_, node, {heads_.key_begin + begin, heads_.key_begin + end}, call_.scratch[thread]);
      }
    });
  }

  // Nodes of the crown in any order; threads share nodes and heads.
  void crown_families(NodeStep step) const {
    const auto nodes = call_.p.walk.crown;
    share(static_cast<int64_t>(nodes.size()) * num_heads(), [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = heads_.key_begin + i % num_heads();
        step(call_, nodes[i / num_heads()], {head, head + 1}, call_.scratch[thread]);
      }
    });
  }

  void roots(NodeStep step) const {
    share(call_.p.walk.totals.num_roots, [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t n = begin; n < end; ++n) step(call_, n, heads_, call_.scratch[thread]);
    });
  }

  // Trees of more than one leaf, each with some heads.
  void trees(NodeStep step) const {
    const WalkView& walk = call_.p.walk;
    share(walk.totals.num_roots * num_heads(), [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin, next; i < end; i = next) {
        const int64_t root = i / num_heads(), first = i % num_heads();
        next = std::min(end, (root + 1) * num_heads());
        const HeadRange heads = {heads_.key_begin + first, heads_.key_begin + first + next - i};
        if (!walk.nodes[root].is_leaf()) step(call_, root, heads, call_.scratch[thread]);
      }
    });
  }

  // Trees of one leaf.
  void bare_leaves(NodeStep step) const {
    const WalkView& walk = call_.p.walk;
    share(walk.totals.num_roots, [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t n = begin; n < end; ++n) {
        if (walk.nodes[n].is_leaf()) step(call_, n, heads_, call_.scratch[thread]);
      }
    });
  }

 private:
  int64_t num_crown_levels() const { return static_cast<int64_t>(call_.p.walk.crown_level_begin.size()) - 1; }

  int64_t num_heads() const { return heads_.key_end - heads_.key_begin; }

  // Whether threads take boughs, not groves: where they get as many each, or nearly so.
  bool takes_boughs() const {
    const auto count = static_cast<int64_t>(call_.p.walk.boughs.size());
    return count % threads_.count == 0 || count >= 16 * threads_.count;
  }

  // With its bough.
  bool is_done(int64_t crown_node) const { return takes_boughs() && call_.p.walk.nodes[crown_node].is_in_bough; }

  template <class Step>
  void boughs(const Step& step) const {
    const auto boughs = call_.p.walk.boughs;
    share(static_cast<int64_t>(boughs.size()), [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin; i < end; ++i) step(boughs[i], call_.scratch[thread]);
    });
  }
  void bough_up(const Bough& bough, const UpAndDown& steps, Scratch& scratch) const {
    const WalkView& walk = call_.p.walk;
    for (int64_t g = bough.grove_begin; g < bough.grove_end; ++g) {
      steps.groves_up(call_, walk.groves[g], heads_, scratch);
    }
    for (int64_t i = bough.node_end; i-- > bough.node_begin;) {
      steps.crown_up.narrow(call_, walk.bough_nodes[i], heads_, scratch);
    }
  }
  void bough_down(const Bough& bough, const UpAndDown& steps, Scratch& scratch) const {
    const WalkView& walk = call_.p.walk;
    for (int64_t i = bough.node_begin; i < bough.node_end; ++i) {
      steps.crown_down.narrow(call_, walk.bough_nodes[i], heads_, scratch);
    }
    for (int64_t g = bough.grove_begin; g < bough.grove_end; ++g) {
      if (!walk.groves[g].is_whole) steps.groves_down(call_, walk.groves[g], heads_, scratch);
    }
  }

  // Those below a crown.
  void groves_below(GroveStep step) const {
    const auto groves = call_.p.walk.groves;
    share(static_cast<int64_t>(groves.size()), [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin; i < end; ++i) {
        if (!groves[i].is_whole) step(call_, groves[i], heads_, call_.scratch[thread]);
      }
    });
  }

  // The crown up and down again, without what boughs do. With many heads each thread takes some of them all the way;
  // else families of a level are shared, and threads wait for each other after each.
  void crown(const CrownStep& up, const CrownStep& down) const {
    std::vector<int64_t> nodes;
    for (const int64_t node : call_.p.walk.crown) {
      if (!is_done(node)) nodes.push_back(node);
    }
    if (nodes.empty()) return;
    if (!has_many_heads()) {
      for (int64_t l = num_crown_levels() - 1; l >= 0; --l) crown_level(l, up);
      for (int64_t l = 0; l < num_crown_levels(); ++l) crown_level(l, down);
      return;
    }
    by_heads([&](const Walker& walker) {
      for (size_t i = nodes.size(); i-- > 0;) walker.family(nodes[i], up);
      for (size_t i = 0; i < nodes.size(); ++i) walker.family(nodes[i], down);
    });
  }

  // Families of a level, each by heads: few families may have to keep many threads busy.
  void crown_level(int64_t level, const CrownStep& step) const {
    const WalkView& walk = call_.p.walk;
    const auto nodes = walk.crown.subspan(walk.crown_level_begin[level],
                                          walk.crown_level_begin[level + 1] - walk.crown_level_begin[level]);
    std::vector<int64_t> narrow;
    int64_t work = 0;
    for (const int64_t node : nodes) {
      if (is_done(node)) continue;
      if (walk.nodes[node].is_wide()) {
        family(node, step);
      } else {
        narrow.push_back(node);
        work += family_work(call_, walk.nodes[node]);
      }
    }
    const Task task = [&](int64_t begin, int64_t end, int64_t thread) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = heads_.key_begin + i % num_heads();
        step.narrow(call_, narrow[i / num_heads()], {head, head + 1}, call_.scratch[thread]);
      }
    };
    const auto count = static_cast<int64_t>(narrow.size()) * num_heads();
    const bool is_little = work * call_.p.heads < kSerialWork && threads_.count > 1;
    if (!is_little) return share(count, task);
    const FlushDenormals flush;  // as other threads do
    task(0, count, 0);
    if (call_.streams) hwy::FlushStream();
  }

  // One family of the crown with all threads.
  void family(int64_t node, const CrownStep& step) const {
    const WalkNode& parent = call_.p.walk.nodes[node];
    const auto by_heads = [&](NodeStep part) {
      if (!part) return;
      share(num_heads(), [&](int64_t begin, int64_t end, int64_t thread) {
        part(call_, node, {heads_.key_begin + begin, heads_.key_begin + end}, call_.scratch[thread]);
      });
    };
    const auto by_tiles = [&](TileStep part) {
      if (!part) return;
      const int64_t tiles = num_wide_tiles(parent);
      share(tiles * num_heads(), [&](int64_t begin, int64_t end, int64_t thread) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t head = heads_.key_begin + i / tiles;
          part(call_, {node, i % tiles}, {head, head + 1}, call_.scratch[thread]);
        }
      });
    };
    // All pairs of tiles, in rounds: a tile has another partner in each, so that no two threads add to the same rows,
    // and sums have one order. A thread that is alone keeps to a head, whose rows may stay in the cache.
    const auto by_pairs = [&](PairStep part) {
      if (!part) return;
      const int64_t tiles = num_wide_tiles(parent), heads_at_once = threads_.count == 1 ? 1 : num_heads();
      for (int64_t first = heads_.key_begin; first < heads_.key_end; first += heads_at_once) {
        for (int64_t round = 0; round < tiles; ++round) {
          share(tiles * heads_at_once, [&](int64_t begin, int64_t end, int64_t thread) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t head = first + i / tiles, keys = i % tiles;
              part(call_, {node, keys, (keys + round) % tiles}, {head, head + 1}, call_.scratch[thread]);
            }
          });
        }
      }
    };
    if (!parent.is_wide()) return by_heads(step.narrow);
    by_heads(step.before);
    by_tiles(step.tiles);
    by_pairs(step.pairs);
    by_heads(step.after);
  }

  void share(int64_t count, const Task& task) const {
    if (count == 0) return;
    threads_.run(count, [&](int64_t begin, int64_t end, int64_t thread) {
      task(begin, end, thread);
      if (call_.streams) hwy::FlushStream();  // other threads may read it in the next step
    });
  }

  const Call& call_;
  HeadRange heads_;
  const Threads& threads_;
};

}  // namespace ramify::cpu
