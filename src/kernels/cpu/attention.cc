// The order of the steps, and how threads share them.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <vector>

#include "hwy/cache_control.h"
#include "kernels/cpu/block_attention.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/prefix_attention.h"
#include "kernels/cpu/sweep_attention.h"
#include "kernels/cpu/untied_attention.h"
#include "kernels/cpu/wide_family.h"

namespace ramify::cpu {
namespace {

// Below this many multiply-adds threads would wait for each other longer than they work.
constexpr int64_t kSerialWork = int64_t{1} << 19;
// Outputs that are larger than this would not stay in the caches.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// Multiply-adds of one head of a family, and as much again as its rows cost.
int64_t family_work(const Call& call, const WalkNode& node) {
  return node.num_children * (node.num_children + 4) * (call.dim + call.value_dim + call.position_dim);
}

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
constexpr CrownStep kUp = {crown_up, nullptr, wide_attend, nullptr, wide_fold};
constexpr CrownStep kDown = {crown_down, nullptr, wide_down, nullptr, nullptr};
constexpr CrownStep kBackwardUp = {crown_backward_up, wide_backward_fold, nullptr, nullptr, nullptr};
constexpr CrownStep kBackwardDown = {crown_backward_down, wide_backward_gates, nullptr, wide_backward_pair,
                                     wide_backward_finish};

// The caller's threads, without the slow arithmetic of tiny numbers.
Threads flushing(const Threads& threads) {
  return {threads.count, [&threads](int64_t count, const Task& task) {
            threads.run(count, [&task](int64_t begin, int64_t end, int64_t thread) {
              const FlushDenormals flush;
              task(begin, end, thread);
            });
          }};
}

// A thread that shares its work with no other.
Threads alone(int64_t thread) {
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

// Sums the gradients of nodes, and of leaves towards themselves, by their row of the table: each row by one thread, its
// nodes in their order, so that the sum does not depend on threads.
void sum_positions(const Call& call, int64_t num_positions, float* grad_positions, const Threads& threads) {
  if (num_positions == 0) return;
  const AttentionParams& p = call.p;
  const int64_t width = p.heads * call.position_dim;
  std::vector<int64_t> begin(num_positions + 1);
  const auto for_each_entry = [&](const auto& visit) {
    for (size_t n = p.walk.totals.num_roots; n < p.walk.nodes.size(); ++n) {
      visit(p.node_position[n], call.grad_node_positions + static_cast<int64_t>(n) * width);
    }
    if (!p.include_self) return;
    for (size_t n = 0; n < p.walk.nodes.size(); ++n) {
      const WalkNode& node = p.walk.nodes[n];
      if (!node.is_leaf()) continue;
      const int64_t own = p.self_position[node.first_leaf];
      if (node.parent < 0 || own != p.node_position[n]) visit(own, call.grad_self_positions + node.first_leaf * width);
    }
  };
  for_each_entry([&](int64_t position, const float*) {
    if (position >= 0) ++begin[position + 1];
  });
  for (int64_t r = 0; r < num_positions; ++r) begin[r + 1] += begin[r];
  std::vector<const float*> rows(begin[num_positions]);
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  for_each_entry([&](int64_t position, const float* row) {
    if (position >= 0) rows[next[position]++] = row;
  });
  threads.run(num_positions, [&](int64_t first, int64_t last, int64_t) {
    for (int64_t r = first; r < last; ++r) {
      float* to = grad_positions + r * p.heads * p.position_dim;
      std::fill_n(to, p.heads * p.position_dim, 0.0f);
      for (int64_t i = begin[r]; i < begin[r + 1]; ++i) {
        for (int64_t h = 0; h < p.heads; ++h) {
          for (int64_t c = 0; c < p.position_dim; ++c) to[h * p.position_dim + c] += rows[i][h * call.position_dim + c];
        }
      }
    }
  });
}

// Whether rows are whole lines of the cache.
bool can_stream(const Rows& rows, const AttentionParams& p, int64_t dim) {
  const int64_t line = p.storage == Storage::float32 ? 16 : 32;
  return reinterpret_cast<uintptr_t>(rows.data) % 64 == 0 && rows.row_stride % line == 0 &&
         rows.head_stride % line == 0 && dim % line == 0;
}

int64_t num_leaves(const AttentionParams& p) {
  int64_t leaves = 0;
  for (int64_t n = 0; n < p.walk.totals.num_roots; ++n) leaves += p.walk.nodes[n].size;
  return leaves;
}

void tied_forward(const Walker& walker) {
  walker.up_and_down({grove_up, kUp, kDown, grove_down});
}

void tied_backward(const Walker& walker) {
  walker.up_and_down({grove_backward_up, kBackwardUp, kBackwardDown, grove_backward_down});
}

void swept_forward(const Walker& walker) {
  walker.trees(sweep_forward);
  walker.roots(untied_energy);
}

void prefix_forward_steps(const Walker& walker) {
  walker.trees(prefix_forward);
}
void prefix_backward_steps(const Walker& walker) {
  walker.trees(prefix_backward);
}

void untied_forward(const Walker& walker) {
  walker.groves(untied_pool_grove);
  walker.crown_nodes(untied_pool, Walker::Direction::up);
  walker.runs(untied_attend);
  walker.roots(untied_energy);
}

void swept_backward(const Walker& walker) {
  walker.trees(sweep_backward);
}

// With many heads each thread takes some of them all the way, and adds to all that its leaves look at; else leaves are
// shared, and those that look at a family of the crown come again for its gradients.
void untied_backward(const Walker& walker) {
  const bool has_many_heads = walker.has_many_heads();
  const auto steps = [&](const Walker& some) {
    some.crown_nodes(untied_clear_leaves, Walker::Direction::down);
    some.runs(has_many_heads ? untied_backward_run : untied_backward_queries);
    if (!has_many_heads) some.crown_families(untied_backward_keys);
    some.crown_nodes(untied_share, Walker::Direction::down);
    some.groves(untied_share_grove);
  };
  if (has_many_heads) return walker.by_heads(steps);
  steps(walker);
}

// What untied gradients are added to. Those of leaves are cleared where they are computed.
void clear_sums(const Call& call, const Threads& threads) {
  const AttentionParams& p = call.p;
  const auto clear = [&](float* sums, int64_t size) {
    constexpr int64_t kPart = 1 << 16;
    if (!sums || size == 0) return;
    threads.run((size + kPart - 1) / kPart, [&](int64_t begin, int64_t end, int64_t) {
      std::fill(sums + begin * kPart, sums + std::min(size, end * kPart), 0.0f);
    });
  };
  clear(call.grad_mean_k, p.walk.totals.inner * p.key_heads * call.dim);
  clear(call.grad_mean_v, p.walk.totals.inner * p.key_heads * call.value_dim);
  clear(call.grad_node_positions, static_cast<int64_t>(p.walk.nodes.size()) * p.heads * call.position_dim);
}

// A call with its memory.
Call prepare(const AttentionParams& params, Pass pass, float* saved, float* workspace, std::vector<Scratch>& scratch) {
  Call call = make_call(params);
  carve_saved(call, saved);
  carve_workspace(call, pass, workspace, scratch);
  call.scratch = scratch.data();
  return call;
}

}  // namespace

int64_t saved_size(const AttentionParams& params) {
  Call call = make_call(params);
  return carve_saved(call, nullptr);
}
int64_t forward_workspace(const AttentionParams& params, int64_t threads) {
  Call call = make_call(params);
  std::vector<Scratch> scratch(threads);
  return carve_workspace(call, Pass::forward, nullptr, scratch);
}
int64_t backward_workspace(const AttentionParams& params, int64_t threads) {
  Call call = make_call(params);
  std::vector<Scratch> scratch(threads);
  return carve_workspace(call, Pass::backward, nullptr, scratch);
}

void forward(const AttentionParams& params, const ForwardResult& result, float* workspace, const Threads& given) {
  const Threads threads = flushing(given);
  std::vector<Scratch> scratch(threads.count);
  Call call = prepare(params, Pass::forward, result.saved, workspace, scratch);
  clear_unwritten(call);
  call.out = result.out, call.root_energy = result.root_energy;
  call.streams = num_leaves(params) * params.heads * params.value_dim * 4 > kStreamedBytes &&
                 can_stream(call.out, params, params.value_dim);
  const Walker walker(call, {0, params.key_heads}, threads);
  walker.bare_leaves(bare_leaf);
  const auto steps = is_swept(params)          ? swept_forward
                     : is_prefix(params)       ? prefix_forward_steps
                     : params.tie == Tie::none ? untied_forward
                                               : tied_forward;
  steps(walker);
}

void backward(const AttentionParams& params, const BackwardInput& input, const BackwardResult& result, float* workspace,
              const Threads& given) {
  const Threads threads = flushing(given);
  std::vector<Scratch> scratch(threads.count);
  Call call = prepare(params, Pass::backward, input.saved, workspace, scratch);
  call.grad_out = input.grad_out, call.grad_root_energy = input.grad_root_energy;
  call.grad_q = result.grad_q, call.grad_k = result.grad_k, call.grad_v = result.grad_v;
  call.streams = num_leaves(params) * params.heads * params.dim * 4 > kStreamedBytes &&
                 can_stream(call.grad_q, params, params.dim) && can_stream(call.grad_k, params, params.dim) &&
                 can_stream(call.grad_v, params, params.value_dim);
  if (params.tie == Tie::none || is_prefix(params)) clear_sums(call, threads);
  const Walker walker(call, {0, params.key_heads}, threads);
  walker.bare_leaves(bare_leaf_backward);
  const auto steps = is_swept(params)          ? swept_backward
                     : is_prefix(params)       ? prefix_backward_steps
                     : params.tie == Tie::none ? untied_backward
                                               : tied_backward;
  steps(walker);
  if (params.position_dim > 0) sum_positions(call, input.num_positions, result.grad_positions, threads);
}

}  // namespace ramify::cpu
