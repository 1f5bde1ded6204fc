#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hierarchy/forest_writer.h"
#include "signal/batch.h"
#include "signal/level_parts.h"
#include "signal/positions.h"

namespace ramify::signal {
namespace {

using Signals = std::span<const Signal* const>;

ForestWriter one_root_each(size_t trees, size_t nodes) {
  std::vector<int64_t> tree_begin(trees + 1);
  for (size_t t = 0; t <= trees; ++t) tree_begin[t] = static_cast<int64_t>(t);
  return {std::move(tree_begin), static_cast<int64_t>(nodes)};
}

Forest hierarchical_forest(Signals signals) {
  size_t nodes = 0;
  for (const Signal* signal : signals) nodes += signal->children.size();
  ForestWriter writer = one_root_each(signals.size(), nodes);
  for_each_level_part(signals, [&](size_t tree, size_t first, size_t last) {
    for (size_t n = first; n < last; ++n) writer.add_node(signals[tree]->children[n]);
  });
  return std::move(writer).finish();
}

Forest flat_forest(Signals signals) {
  int64_t leaves = 0;
  for (const Signal* signal : signals) leaves += signal->num_leaves();
  ForestWriter writer = one_root_each(signals.size(), signals.size() + static_cast<size_t>(leaves));
  for (const Signal* signal : signals) writer.add_node(signal->num_leaves());
  for (int64_t leaf = 0; leaf < leaves; ++leaf) writer.add_node(0);
  return std::move(writer).finish();
}

// The rows of every modality, with room for the leaves of all records.
std::vector<LeafRows> empty_rows(Signals signals, const std::vector<Modality>& modalities) {
  std::vector<size_t> counts(modalities.size(), 0);
  for (const Signal* signal : signals) {
    for (const uint8_t modality : signal->modality) ++counts[modality];
  }
  std::vector<LeafRows> leaves(modalities.size());
  for (size_t m = 0; m < modalities.size(); ++m) {
    const Feature feature = modalities[m].feature;
    leaves[m].width = feature == Feature::dense ? modalities[m].size : feature == Feature::numbers ? 1 : 0;
    leaves[m].leaf.reserve(counts[m]);
    if (feature != Feature::dense) leaves[m].id.reserve(counts[m]);
    leaves[m].value.reserve(counts[m] * static_cast<size_t>(leaves[m].width));
  }
  return leaves;
}

std::vector<LeafRows> collate_leaves(Signals signals, const Schema& schema) {
  const std::vector<Modality> modalities = schema.modalities();
  std::vector<LeafRows> leaves = empty_rows(signals, modalities);
  const auto is_patch = [](const Modality& modality) { return modality.name == "patch"; };
  const auto patch = std::find_if(modalities.begin(), modalities.end(), is_patch) - modalities.begin();
  int64_t leaf = 0;
  for (const Signal* signal : signals) {
    const float* values = signal->values.data();
    const uint8_t* patches = signal->patches.data();
    for (size_t i = 0; i < signal->modality.size(); ++i, ++leaf) {
      const uint8_t m = signal->modality[i];
      LeafRows& rows = leaves[m];
      rows.leaf.push_back(leaf);
      if (modalities[m].feature != Feature::dense) rows.id.push_back(signal->id[i]);
      if (m == patch) {
        for (int64_t j = 0; j < rows.width; ++j) rows.value.push_back(static_cast<float>(*patches++) * (1 / 255.F));
      } else if (rows.width > 0) {
        rows.value.insert(rows.value.end(), values, values + rows.width);
        values += rows.width;
      }
    }
  }
  return leaves;
}

void add_classes(const SignalTarget& own, size_t num_classes, std::vector<float>& values) {
  constexpr float kNotKnown = std::numeric_limits<float>::quiet_NaN();
  const size_t begin = values.size();
  values.resize(begin + num_classes, own.known ? 0.F : kNotKnown);
  for (const int32_t c : own.classes) values[begin + static_cast<size_t>(c)] = 1;
}

Targets collate_targets(Signals signals, const Target& target) {
  Targets targets;
  int64_t first_leaf = 0;
  for (const Signal* signal : signals) {
    const SignalTarget& own = signal->target;
    if (target.task == Task::nodes) {
      for (size_t r = 0; r < own.leaf_begin.size(); ++r) {
        targets.leaf_begin.push_back(first_leaf + own.leaf_begin[r]);
        targets.leaf_end.push_back(first_leaf + own.leaf_end[r]);
        targets.classes.push_back(own.known ? own.classes[r] : kNoClass);
      }
    } else {
      targets.leaf_begin.push_back(first_leaf);
      targets.leaf_end.push_back(first_leaf + signal->num_leaves());
    }
    if (target.task == Task::classification) targets.classes.push_back(own.known ? own.classes[0] : kNoClass);
    if (target.task == Task::multilabel) add_classes(own, target.classes.size(), targets.values);
    if (target.task == Task::regression) {
      // the mean is taken off before float32 rounds: targets may be far from 0
      const double value = own.known ? (own.value - target.mean) / target.deviation : std::nan("");
      targets.values.push_back(static_cast<float>(value));
    }
    first_leaf += signal->num_leaves();
  }
  return targets;
}

}  // namespace

Batch collate(Signals signals, const Schema& schema, const CollateOptions& options) {
  Batch batch;
  const bool is_flat = options.structure == Structure::flat;
  batch.forest = is_flat ? flat_forest(signals) : hierarchical_forest(signals);
  batch.leaves = collate_leaves(signals, schema);
  batch.positions = is_flat ? flat_positions(signals) : hierarchical_positions(signals, schema, options);
  batch.targets = collate_targets(signals, schema.target);
  return batch;
}

}  // namespace ramify::signal
