// The order of the steps.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/block_attention.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/prefix_attention.h"
#include "kernels/cpu/sweep_attention.h"
#include "kernels/cpu/untied_attention.h"
#include "kernels/cpu/walker.h"
#include "kernels/cpu/wide_family.h"

namespace ramify::cpu {
namespace {

// Results that are together larger than this would not stay in the caches.
constexpr int64_t kStreamedBytes = int64_t{5} << 20;

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

// Whether results of so many numbers a leaf are together larger than the caches.
bool are_large(const AttentionParams& p, int64_t numbers) {
  return num_leaves(p) * numbers * static_cast<int64_t>(sizeof(float)) > kStreamedBytes;
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
  call.streams = are_large(params, params.heads * params.value_dim) && can_stream(call.out, params, params.value_dim);
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
  const int64_t results = params.heads * params.dim + params.key_heads * (params.dim + params.value_dim);
  call.streams = are_large(params, results) && can_stream(call.grad_q, params, params.dim) &&
                 can_stream(call.grad_k, params, params.dim) && can_stream(call.grad_v, params, params.value_dim);
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
