#include "ops/block_walk_tensors.h"

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

#include "hierarchy/contraction.h"
#include "ops/plan_tensors.h"

namespace ramify {
namespace {

constexpr int64_t kTables = 16;
constexpr int64_t kTotalWords = sizeof(BlockTotals) / sizeof(int64_t);
constexpr int64_t kStageWords = sizeof(BlockStage) / sizeof(int64_t);
// For each kind: lengths of the tables, of stage_begin, the totals, then stage_begin.
constexpr int64_t kWalkHeaderWords = kTables + 1 + kTotalWords;

// Calls visit(table) for the tables of a walk or of a view, in their order.
template <class Walk, class Visit>
void for_each_table(Walk& walk, const Visit& visit) {
  visit(walk.nodes), visit(walk.families), visit(walk.members), visit(walk.leaf_nodes), visit(walk.bare_leaves);
  visit(walk.rounds), visit(walk.units), visit(walk.wide_tiles), visit(walk.groves), visit(walk.tiles);
  visit(walk.grove_families), visit(walk.places), visit(walk.grove_rounds), visit(walk.tile_blocks);
  visit(walk.leaf_sights), visit(walk.leaf_above);
}

void append_walk(const BlockWalk& walk, std::vector<int64_t>& host, std::vector<int64_t>& device) {
  for_each_table(walk, [&](const auto& table) {
    host.push_back(static_cast<int64_t>(table.size()));
    const size_t bytes = table.size() * sizeof(table[0]), begin = device.size();
    static_assert(sizeof(table[0]) % sizeof(int64_t) == 0);
    device.resize(begin + bytes / sizeof(int64_t));
    if (bytes > 0) std::memcpy(device.data() + begin, table.data(), bytes);
  });
  host.push_back(static_cast<int64_t>(walk.stage_begin.size()));
  const auto* totals = reinterpret_cast<const int64_t*>(&walk.totals);
  host.insert(host.end(), totals, totals + kTotalWords);
  const auto* stages = reinterpret_cast<const int64_t*>(walk.stage_begin.data());
  host.insert(host.end(), stages, stages + walk.stage_begin.size() * kStageWords);
}

// Reads one walk; moves both pointers behind it.
BlockWalkView read_walk(const int64_t*& host, const int64_t*& device) {
  BlockWalkView view;
  for_each_table(view, [&]<class Record>(std::span<const Record>& table) {
    const auto count = static_cast<size_t>(*host++);
    table = {reinterpret_cast<const Record*>(device), count};
    device += count * sizeof(Record) / sizeof(int64_t);
  });
  const auto num_stages = static_cast<size_t>(*host++);
  std::memcpy(static_cast<void*>(&view.totals), host, sizeof(view.totals));
  host += kTotalWords;
  view.stage_begin = {reinterpret_cast<const BlockStage*>(host), num_stages};
  host += num_stages * kStageWords;
  return view;
}

}  // namespace

BlockWalkTensors block_walk_tensors(const Forest& forest, at::Device device) {
  const c10::InferenceMode ordinary(false);
  const Forest contracted = contract(forest).forest;
  const BlockWalk walks[] = {make_block_walk(contracted, kNoGroves), make_block_walk(contracted, kGroves)};
  std::vector<int64_t> host, words;
  for (const BlockWalk& walk : walks) append_walk(walk, host, words);
  for (int64_t tree = 0; tree < forest.num_trees(); ++tree) {
    if (forest.tree_begin()[tree] < forest.tree_begin()[tree + 1]) words.push_back(tree);
  }
  return {own_as_tensor(std::move(host)),
          own_as_tensor(std::move(words)).to(device),
          {walks[0].totals.num_slots, walks[1].totals.num_slots},
          static_cast<int64_t>(walks[1].places.size()),
          walks[1].totals.has_wide ? walks[1].totals.num_leaves : 0};
}

void check_block_walks(const at::Tensor& host, const at::Tensor& device) {
  const auto words = integers(host, "attention: the fifth tensor of the plan");
  const int64_t* at = words.data();
  const int64_t* const end = at + words.size();
  int64_t device_words = 0, num_roots = 0;
  bool is_whole = true;
  for (int kind = 0; kind < 2 && is_whole; ++kind) {
    is_whole = end - at >= kWalkHeaderWords + 1;
    if (!is_whole) break;
    BlockWalkView view;
    for_each_table(view, [&]<class Record>(std::span<const Record>&) {
      is_whole = is_whole && *at >= 0 && *at <= device.numel();
      device_words += *at++ * static_cast<int64_t>(sizeof(Record) / sizeof(int64_t));
    });
    const int64_t num_stages = *at++;
    num_roots = at[offsetof(BlockTotals, num_roots) / sizeof(int64_t)];
    at += kTotalWords;
    is_whole = is_whole && num_stages > 0 && num_stages <= (end - at) / kStageWords;
    if (is_whole) at += num_stages * kStageWords;
  }
  TORCH_CHECK_VALUE(is_whole && at == end && device.dim() == 1 && device.scalar_type() == at::kLong &&
                        device.is_contiguous() && device.numel() == device_words + num_roots,
                    "attention: the plan is not one that ramify::plan gives");
}

BlockWalkView block_walk_view(const at::Tensor& host, const at::Tensor& device, WalkKind kind) {
  const int64_t* host_words = host.const_data_ptr<int64_t>();
  const int64_t* device_words = device.const_data_ptr<int64_t>();
  const BlockWalkView first = read_walk(host_words, device_words);
  return kind == WalkKind::without_groves ? first : read_walk(host_words, device_words);
}

at::Tensor trees_of_roots(const at::Tensor& host, const at::Tensor& device) {
  const int64_t num_roots = block_walk_view(host, device, WalkKind::without_groves).totals.num_roots;
  return device.narrow(0, device.numel() - num_roots, num_roots);
}

}  // namespace ramify
