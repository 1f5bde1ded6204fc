#include "ops/plan_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <memory>

#include "hierarchy/contraction.h"
#include "ops/block_walk_tensors.h"

namespace ramify {
namespace {

// The int64 fields of a record.
template <class Record>
constexpr int64_t words_of() {
  static_assert(sizeof(Record) % sizeof(int64_t) == 0 && std::is_trivially_copyable_v<Record>);
  return sizeof(Record) / sizeof(int64_t);
}

// Records as a table of one row each.
template <class Record>
at::Tensor own_records(std::vector<Record> records) {
  auto owner = std::make_shared<std::vector<Record>>(std::move(records));
  const c10::InferenceMode ordinary(false);  // a forest met first in inference mode can be trained on later
  return at::from_blob(
      owner->data(), {static_cast<int64_t>(owner->size()), words_of<Record>()}, [owner](void*) {}, at::kLong);
}

template <class Record>
void append_records(std::vector<int64_t>& words, const std::vector<Record>& records) {
  const size_t begin = words.size();
  words.resize(begin + records.size() * words_of<Record>());
  if (!records.empty()) std::memcpy(words.data() + begin, records.data(), records.size() * sizeof(Record));
}

template <class Record>
std::span<const Record> view_records(const int64_t*& words, int64_t count) {
  const auto* records = reinterpret_cast<const Record*>(words);
  words += count * words_of<Record>();
  return {records, static_cast<size_t>(count)};
}

at::Tensor at_data(const Forest& forest, std::span<const int64_t> data) {
  const c10::InferenceMode ordinary(false);  // usable for training wherever it was made
  // Tensors of a Forest are read only by agreement; the Forest lives as long as any of them.
  return at::from_blob(
      const_cast<int64_t*>(data.data()), {static_cast<int64_t>(data.size())}, [forest](void*) {}, at::kLong);
}

}  // namespace

at::Tensor own_as_tensor(std::vector<int64_t> values) {
  return own_records(std::move(values)).flatten();
}

namespace {

// Words in front of the levels and batches.
enum ScheduleWord { kQueries, kNumNodes, kNumLevels, kNumBatches, kHeaderWords };

// In front of the totals and tables of a walk: how long the tables are.
struct WalkHeader {
  int64_t num_nodes = 0, num_groves = 0, num_boughs = 0, num_bough_nodes = 0, num_crown = 0, num_level_begins = 0;
  int64_t num_runs = 0, num_leaves = 0;

  int64_t num_words() const {
    return words_of<WalkHeader>() + words_of<WalkTotals>() + num_nodes * words_of<WalkNode>() +
           num_groves * words_of<Grove>() + num_boughs * words_of<Bough>() + num_bough_nodes + num_crown +
           num_level_begins + num_runs * words_of<LeafRun>() + num_leaves;
  }
};

std::vector<int64_t> words_of_walk(const Walk& walk) {
  const auto count = [](const auto& vector) { return static_cast<int64_t>(vector.size()); };
  std::vector<int64_t> words;
  append_records<WalkHeader>(
      words, {{count(walk.nodes), count(walk.groves), count(walk.boughs), count(walk.bough_nodes), count(walk.crown),
               count(walk.crown_level_begin), count(walk.runs), count(walk.leaf_nodes)}});
  append_records<WalkTotals>(words, {walk.totals});
  append_records(words, walk.nodes);
  append_records(words, walk.groves);
  append_records(words, walk.boughs);
  append_records(words, walk.bough_nodes);
  append_records(words, walk.crown);
  append_records(words, walk.crown_level_begin);
  append_records(words, walk.runs);
  append_records(words, walk.leaf_nodes);
  return words;
}

// A tensor of this length that holds nothing.
at::Tensor length_only(int64_t length) {
  return at::empty({length, 0}, at::kByte);
}

}  // namespace

std::vector<at::Tensor> to_tensors(const Forest& forest, Queries queries, at::Device device) {
  const c10::InferenceMode ordinary(false);
  Plan plan = make_plan(forest, queries);
  std::vector<int64_t> schedule = {static_cast<int64_t>(queries), forest.num_nodes(),
                                   static_cast<int64_t>(plan.levels.size()), static_cast<int64_t>(plan.batches.size())};
  append_records(schedule, plan.levels);
  append_records(schedule, plan.batches);
  std::vector<at::Tensor> tensors = {
      own_as_tensor(std::move(schedule)), own_records(std::move(plan.families)).to(device),
      own_records(std::move(plan.leaves)).to(device), own_records(std::move(plan.nodes)).to(device)};
  if (device.is_cuda()) {
    const BlockWalkTensors walks = block_walk_tensors(forest, device);
    tensors.insert(tensors.end(), {walks.host, length_only(walks.num_slots[0]), length_only(walks.num_slots[1]),
                                   length_only(walks.num_places), length_only(walks.num_rests), walks.device});
    return tensors;
  }
  Walk walk;
  if (device.is_cpu()) walk = make_walk(contract(forest).forest);
  tensors.insert(tensors.end(), {own_as_tensor(words_of_walk(walk)), length_only(walk.totals.inner),
                                 length_only(walk.totals.crown_slots), length_only(walk.totals.weights),
                                 length_only(walk.totals.wide_members), at::empty({0}, at::kLong)});
  return tensors;
}

void check_plan(const std::vector<at::Tensor>& tensors, Queries queries, int64_t num_nodes) {
  TORCH_CHECK_VALUE(tensors.size() == 10, "attention: the plan has ", tensors.size(),
                    " tensors; expected 10, as ramify::plan gives them");
  const auto schedule = integers(tensors[0], "attention: the first tensor of the plan");
  const auto num_words = static_cast<int64_t>(schedule.size());
  const auto counts = [&](int64_t word) { return schedule[word] >= 0 && schedule[word] <= num_words; };
  TORCH_CHECK_VALUE(num_words >= kHeaderWords && counts(kNumLevels) && counts(kNumBatches) &&
                        num_words == kHeaderWords + schedule[kNumLevels] * words_of<PlanLevel>() +
                                         schedule[kNumBatches] * words_of<FamilyBatch>(),
                    "attention: the plan is not one that ramify::plan gives");
  const int64_t columns[] = {0, words_of<FamilyRow>(), words_of<LeafRow>(), words_of<NodeRow>()};
  for (size_t i = 1; i < 4; ++i) {
    TORCH_CHECK_VALUE(
        tensors[i].dim() == 2 && tensors[i].size(1) == columns[i] && tensors[i].scalar_type() == at::kLong,
        "attention: the plan is not one that ramify::plan gives");
  }
  TORCH_CHECK_VALUE(schedule[kQueries] == static_cast<int64_t>(queries) && schedule[kNumNodes] == num_nodes,
                    "attention: the plan was made for another forest or another kind of attention");
  if (tensors[1].is_cuda()) return check_block_walks(tensors[4], tensors[9]);
  const auto walk = integers(tensors[4], "attention: the fifth tensor of the plan");
  WalkHeader header;
  if (static_cast<int64_t>(walk.size()) >= words_of<WalkHeader>()) {
    std::memcpy(static_cast<void*>(&header), walk.data(), sizeof(header));
  }
  const auto walk_words = static_cast<int64_t>(walk.size());
  const auto fits = [&](int64_t count) { return count >= 0 && count <= walk_words; };
  TORCH_CHECK_VALUE(fits(header.num_nodes) && fits(header.num_groves) && fits(header.num_boughs) &&
                        fits(header.num_bough_nodes) && fits(header.num_crown) && fits(header.num_level_begins) &&
                        fits(header.num_runs) && fits(header.num_leaves) && walk_words == header.num_words(),
                    "attention: the plan is not one that ramify::plan gives");
  TORCH_CHECK_VALUE(
      !tensors[1].is_cpu() || (header.num_nodes == tensors[3].size(0) && header.num_leaves == tensors[2].size(0)),
      "attention: the plan is made of parts for different forests");
}

WalkView walk_view(const std::vector<at::Tensor>& tensors) {
  const int64_t* words = tensors.at(4).const_data_ptr<int64_t>();
  const WalkHeader header = view_records<WalkHeader>(words, 1)[0];
  WalkView view;
  view.totals = view_records<WalkTotals>(words, 1)[0];
  view.nodes = view_records<WalkNode>(words, header.num_nodes);
  view.groves = view_records<Grove>(words, header.num_groves);
  view.boughs = view_records<Bough>(words, header.num_boughs);
  view.bough_nodes = view_records<int64_t>(words, header.num_bough_nodes);
  view.crown = view_records<int64_t>(words, header.num_crown);
  view.crown_level_begin = view_records<int64_t>(words, header.num_level_begins);
  view.runs = view_records<LeafRun>(words, header.num_runs);
  view.leaf_nodes = view_records<int64_t>(words, header.num_leaves);
  return view;
}

PlanView::PlanView(const std::vector<at::Tensor>& tensors)
    : families(tensors.at(1)), leaves(tensors.at(2)), nodes(tensors.at(3)) {
  const int64_t* words = tensors[0].const_data_ptr<int64_t>();
  const int64_t num_levels = words[kNumLevels], num_batches = words[kNumBatches];
  words += kHeaderWords;
  const auto copy = [](const auto& records) { return std::vector(records.begin(), records.end()); };
  levels = copy(view_records<PlanLevel>(words, num_levels));
  batches = copy(view_records<FamilyBatch>(words, num_batches));
}

std::span<const int64_t> integers(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK_VALUE(tensor.dim() == 1 && tensor.scalar_type() == at::kLong && tensor.is_cpu(), name,
                    " must be an int64 vector on the CPU");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), name, " must be contiguous");
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

Forest forest_from(at::TensorList arrays) {
  TORCH_CHECK_VALUE(arrays.size() == 3, "forest: ", arrays.size(),
                    " arrays; expected first_child, level_begin and tree_begin");
  const auto vector = [](std::span<const int64_t> span) { return std::vector<int64_t>(span.begin(), span.end()); };
  return Forest::from_arrays(vector(integers(arrays[0], "first_child")), vector(integers(arrays[1], "level_begin")),
                             vector(integers(arrays[2], "tree_begin")));
}

ForestArrays arrays_of(const Forest& forest) {
  return {at_data(forest, forest.first_child()), at_data(forest, forest.level_begin()),
          at_data(forest, forest.tree_begin()), at_data(forest, forest.leaf_nodes()),
          at_data(forest, forest.first_leaf())};
}

}  // namespace ramify
