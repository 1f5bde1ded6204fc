// Random nested records of all modalities and domains, and batches of them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <random>
#include <span>
#include <vector>

#include "generators/random_forest.h"
#include "ramify/builders.h"
#include "ramify/nn/model.h"

namespace ramify::testing {

inline constexpr int64_t kTokens = 40, kCategories = 7, kFields = 3, kVectorWidth = 5, kKeys = 6, kGraphFeatures = 4;

inline std::vector<nn::Modality> all_modalities() {
  return {{"token", nn::Feature::ids, kTokens},
          {"category", nn::Feature::ids, kCategories},
          {"number", nn::Feature::numbers, kFields},
          {"vector", nn::Feature::dense, kVectorWidth}};
}

inline nn::ModelInputs all_inputs() {
  using enum nn::Domain;
  return {.num_keys = kKeys, .graph_features = kGraphFeatures, .domains = {key, sequence, grid, graph}};
}

struct RecordLeaf {
  size_t modality = 0;
  int64_t id = 0;
  std::vector<float> value;  // one number, or a vector
};

// Where a node stands in its family: nothing, or one of the four.
struct RecordPosition {
  std::optional<nn::Domain> domain;
  int64_t number = 0;        // key or place
  std::vector<float> value;  // cell or features
};

struct Record {
  std::vector<int64_t> tree;  // as from_nested takes it
  std::vector<RecordLeaf> leaves;
  std::vector<RecordPosition> positions;  // of the nodes, in the order of the tree's own forest

  Forest forest() const { return from_nested(tree); }
};

template <class Number>
at::Tensor vector_tensor(const std::vector<Number>& values, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  const auto type = c10::CppTypeToScalarType<Number>::value;
  return at::from_blob(const_cast<Number*>(values.data()), shape, at::TensorOptions(type)).clone();
}

class RandomRecord {
 public:
  explicit RandomRecord(std::mt19937_64& random, size_t num_modalities = 4)
      : random_(random), num_modalities_(num_modalities) {}

  Record draw(TreeLimits limits = {5, 8, 40}) {
    Record record;
    record.tree = RandomTree(random_, limits).draw();
    fill(record);
    return record;
  }

  // Leaves and positions of a record that has its tree.
  void fill(Record& record) {
    const Forest forest = record.forest();
    for (int64_t i = 0; i < forest.num_leaves(); ++i) record.leaves.push_back(leaf());
    record.positions.resize(forest.num_nodes());
    for (int64_t n = 0; n < forest.num_nodes(); ++n) {
      const int64_t domain = uniform(-1, 3);
      for (int64_t c = forest.first_child()[n]; c < forest.first_child()[n + 1] && domain >= 0; ++c) {
        record.positions[c] = position(static_cast<nn::Domain>(domain), c - forest.first_child()[n]);
      }
    }
  }

  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

 private:
  std::vector<float> numbers(int64_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    return values;
  }
  RecordLeaf leaf() {
    const auto modality = static_cast<size_t>(uniform(0, static_cast<int64_t>(num_modalities_) - 1));
    switch (modality) {
      case 0:
        return {modality, uniform(0, kTokens - 1), {}};
      case 1:
        return {modality, uniform(0, kCategories - 1), {}};
      case 2:
        return {modality, uniform(0, kFields - 1), numbers(1)};
      default:
        return {modality, 0, numbers(kVectorWidth)};
    }
  }
  RecordPosition position(nn::Domain domain, int64_t place) {
    switch (domain) {
      case nn::Domain::key:
        return {domain, uniform(-1, kKeys - 1), {}};
      case nn::Domain::sequence:
        return {domain, place, {}};
      case nn::Domain::grid:
        return {domain, 0, {static_cast<float>(place / 3), static_cast<float>(place % 3)}};
      default:
        return {domain, 0, numbers(kGraphFeatures)};
    }
  }

  std::mt19937_64& random_;
  size_t num_modalities_;
};

inline std::vector<Record> random_records(uint64_t seed, size_t count, size_t num_modalities = 4) {
  std::mt19937_64 random(seed);
  std::vector<Record> records;
  for (size_t r = 0; r < count; ++r) records.push_back(RandomRecord(random, num_modalities).draw());
  return records;
}

// The nodes of each record in the forest of the batch: levels of the batch are those of the records, one after the
// other.
inline std::vector<std::vector<int64_t>> nodes_in_batch(const std::vector<Forest>& forests) {
  std::vector<std::vector<int64_t>> nodes(forests.size());
  int64_t next = 0, deepest = 0;
  for (const Forest& forest : forests) deepest = std::max(deepest, forest.num_levels());
  for (int64_t level = 0; level < deepest; ++level) {
    for (size_t f = 0; f < forests.size(); ++f) {
      if (level >= forests[f].num_levels()) continue;
      const int64_t size = forests[f].level_begin()[level + 1] - forests[f].level_begin()[level];
      for (int64_t n = 0; n < size; ++n) nodes[f].push_back(next++);
    }
  }
  return nodes;
}

inline std::vector<nn::LeafInput> leaf_inputs(std::span<const Record> records,
                                              const std::vector<nn::Modality>& modalities) {
  std::vector<nn::LeafInput> inputs;
  for (size_t m = 0; m < modalities.size(); ++m) {
    std::vector<int64_t> leaf, id;
    std::vector<float> value;
    int64_t number = 0;
    for (const Record& record : records) {
      for (const RecordLeaf& entry : record.leaves) {
        if (entry.modality == m) {
          leaf.push_back(number), id.push_back(entry.id);
          value.insert(value.end(), entry.value.begin(), entry.value.end());
        }
        ++number;
      }
    }
    const auto rows = static_cast<int64_t>(leaf.size());
    const bool dense = modalities[m].feature == nn::Feature::dense;
    inputs.push_back({vector_tensor(leaf), dense ? at::Tensor() : vector_tensor(id), at::Tensor()});
    if (dense) inputs.back().value = vector_tensor(value, {rows, modalities[m].size});
    if (modalities[m].feature == nn::Feature::numbers) inputs.back().value = vector_tensor(value);
  }
  return inputs;
}

// Positions of the records, one row a node. Keys have one or two words.
inline nn::PositionInput position_inputs(std::span<const Record> records, const std::vector<Forest>& forests) {
  std::vector<int64_t> keys, places, key_tokens, key_token_begin = {0};
  std::vector<float> cells, graph;
  std::vector<std::pair<int64_t, int64_t>> row;  // domain and row in it, by node of the batch
  const auto nodes = nodes_in_batch(forests);
  int64_t num_nodes = 0;
  for (const Forest& forest : forests) num_nodes += forest.num_nodes();
  row.assign(num_nodes, {-1, 0});
  for (size_t r = 0; r < records.size(); ++r) {
    for (size_t n = 0; n < records[r].positions.size(); ++n) {
      const RecordPosition& position = records[r].positions[n];
      if (!position.domain) continue;
      const auto domain = static_cast<int64_t>(*position.domain);
      const int64_t next[] = {static_cast<int64_t>(keys.size()), static_cast<int64_t>(places.size()),
                              static_cast<int64_t>(cells.size()) / 2,
                              static_cast<int64_t>(graph.size()) / kGraphFeatures};
      row[nodes[r][n]] = {domain, next[domain]};
      if (domain == 0) {
        keys.push_back(position.number);
        key_tokens.push_back(position.number + 1);
        if (position.number % 2 == 0) key_tokens.push_back(20);
        key_token_begin.push_back(static_cast<int64_t>(key_tokens.size()));
      }
      if (domain == 1) places.push_back(position.number);
      auto& values = domain == 2 ? cells : graph;
      if (domain >= 2) values.insert(values.end(), position.value.begin(), position.value.end());
    }
  }
  const auto size = [](const auto& values) { return static_cast<int64_t>(values.size()); };
  const int64_t first[] = {0, size(keys), size(keys) + size(places), size(keys) + size(places) + size(cells) / 2};
  std::vector<int64_t> index;
  for (const auto& [domain, number] : row) index.push_back(domain < 0 ? -1 : first[domain] + number);
  return {vector_tensor(keys),
          vector_tensor(key_token_begin),
          vector_tensor(key_tokens),
          vector_tensor(places),
          vector_tensor(cells, {size(cells) / 2, 2}),
          vector_tensor(graph, {size(graph) / kGraphFeatures, kGraphFeatures}),
          vector_tensor(index)};
}

struct RecordBatch {
  nn::Batch batch;
  at::Tensor begin, end;  // leaves of each record
};

inline RecordBatch batch_of(std::span<const Record> records,
                            const std::vector<nn::Modality>& modalities = all_modalities()) {
  std::vector<Forest> forests;
  for (const Record& record : records) forests.push_back(record.forest());
  RecordBatch result{
      {concatenate(forests), leaf_inputs(records, modalities), position_inputs(records, forests)}, {}, {}};
  const at::Tensor begin = vector_tensor(result.batch.forest.forest().tree_leaf_begin());
  result.begin = begin.narrow(0, 0, begin.size(0) - 1), result.end = begin.narrow(0, 1, begin.size(0) - 1);
  return result;
}

// A small encoder of two layers, changed by `change`.
template <class Change>
nn::EncoderConfig small_config(Change change) {
  nn::EncoderConfig config;
  config.token_width = 12, config.position_width = 16, config.mlp_width = 8, config.dropout = 0;
  config.layers = {{.heads = 2, .head_dim = 8, .width = 16}, {.heads = 3, .head_dim = 4, .width = 10}};
  change(config);
  return config;
}
inline nn::EncoderConfig small_config() {
  return small_config([](nn::EncoderConfig&) {});
}

}  // namespace ramify::testing
