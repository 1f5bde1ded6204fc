#include "ops/plan_tensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <memory>

namespace ramify {
namespace {

// Records of int64 fields as a table of one row each.
template <class Record>
at::Tensor own_records(std::vector<Record> records) {
  static_assert(sizeof(Record) % sizeof(int64_t) == 0 && std::is_trivially_copyable_v<Record>);
  constexpr int64_t kFields = sizeof(Record) / sizeof(int64_t);
  auto owner = std::make_shared<std::vector<Record>>(std::move(records));
  const c10::InferenceMode ordinary(false);  // a forest met first in inference mode can be trained on later
  return at::from_blob(
      owner->data(), {static_cast<int64_t>(owner->size()), kFields}, [owner](void*) {}, at::kLong);
}

template <class Record>
void append_records(std::vector<int64_t>& words, const std::vector<Record>& records) {
  const size_t begin = words.size();
  words.resize(begin + records.size() * sizeof(Record) / sizeof(int64_t));
  if (!records.empty()) std::memcpy(words.data() + begin, records.data(), records.size() * sizeof(Record));
}

template <class Record>
std::vector<Record> read_records(const int64_t*& words, int64_t count) {
  std::vector<Record> records(count);
  if (count > 0) std::memcpy(static_cast<void*>(records.data()), words, count * sizeof(Record));
  words += count * sizeof(Record) / sizeof(int64_t);
  return records;
}

std::vector<int64_t> to_vector(const at::Tensor& tensor) {
  const int64_t* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

}  // namespace

at::Tensor own_as_tensor(std::vector<int64_t> values) {
  return own_records(std::move(values)).flatten();
}

std::vector<at::Tensor> to_tensors(Plan plan, at::Device device) {
  const c10::InferenceMode ordinary(false);
  std::vector<int64_t> schedule = {static_cast<int64_t>(plan.levels.size()), static_cast<int64_t>(plan.batches.size())};
  append_records(schedule, plan.levels);
  append_records(schedule, plan.batches);
  return {own_as_tensor(std::move(schedule)), own_records(std::move(plan.families)).to(device),
          own_records(std::move(plan.leaves)).to(device), own_records(std::move(plan.nodes)).to(device)};
}

PlanView::PlanView(const std::vector<at::Tensor>& tensors)
    : families(tensors.at(1)), leaves(tensors.at(2)), nodes(tensors.at(3)) {
  const int64_t* words = tensors[0].const_data_ptr<int64_t>();
  const int64_t num_levels = words[0], num_batches = words[1];
  words += 2;
  levels = read_records<PlanLevel>(words, num_levels);
  batches = read_records<FamilyBatch>(words, num_batches);
}

Forest forest_from(const std::vector<at::Tensor>& arrays) {
  return Forest::from_arrays(to_vector(arrays[0]), to_vector(arrays[1]), to_vector(arrays[2]));
}

}  // namespace ramify
