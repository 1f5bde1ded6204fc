#include "signal/positions.h"

#include <algorithm>
#include <map>

#include "signal/level_parts.h"
#include "signal/random.h"

namespace ramify::signal {
namespace {

using Signals = std::span<const Signal* const>;

// Finds out which positions a batch has, then which row each of them is.
class PositionRows {
 public:
  PositionRows(Signals signals, const Schema& schema) : signals_(signals), schema_(schema) {
    key_rows_.assign(schema.keys.size(), kUnused);
    for (const Signal* signal : signals) mark(*signal);
    std::sort(cells_.begin(), cells_.end());
    cells_.erase(std::unique(cells_.begin(), cells_.end()), cells_.end());
  }

  // All but graph and index.
  Positions number() {
    Positions positions;
    number_keys(positions);
    for (size_t place = 0; place < place_rows_.size(); ++place) {
      if (place_rows_[place] == kUnused) continue;
      place_rows_[place] = next_++;
      positions.places.push_back(static_cast<int64_t>(place));
    }
    first_cell_ = next_;
    next_ += static_cast<int64_t>(cells_.size());
    for (const int32_t cell : cells_) {
      positions.cells.push_back(static_cast<float>(cell >> 16));
      positions.cells.push_back(static_cast<float>(cell & 0xffff));
    }
    int64_t row = next_;
    for (const Signal* signal : signals_) {
      first_graph_.push_back(row);
      row += static_cast<int64_t>(signal->graph_positions.size()) / schema_.graph_features;
    }
    return positions;
  }

  int64_t row(size_t tree, size_t node) const {
    const auto place = static_cast<int64_t>(signals_[tree]->place[node]);
    switch (signals_[tree]->domain[node]) {
      case Domain::none:
        return -1;
      case Domain::key:
        return place >= 0 ? key_rows_[place] : unknown_rows_.at(signals_[tree]->unknown_keys[-1 - place]);
      case Domain::sequence:
        return place_rows_[place];
      case Domain::grid:
        return first_cell_ + (std::lower_bound(cells_.begin(), cells_.end(), place) - cells_.begin());
      case Domain::graph:
        return first_graph_[tree] + place;
    }
    return -1;
  }

 private:
  static constexpr int64_t kUnused = -1, kUsed = 0;

  void mark(const Signal& signal) {
    for (size_t n = 0; n < signal.place.size(); ++n) {
      const auto place = static_cast<int64_t>(signal.place[n]);
      switch (signal.domain[n]) {
        case Domain::key:
          if (place >= 0) key_rows_[place] = kUsed;
          break;
        case Domain::sequence:
          if (place >= static_cast<int64_t>(place_rows_.size())) place_rows_.resize(place + 1, kUnused);
          place_rows_[place] = kUsed;
          break;
        case Domain::grid:
          cells_.push_back(signal.place[n]);
          break;
        default:
          break;
      }
    }
    for (const auto& words : signal.unknown_keys) {
      if (unknown_rows_.emplace(words, kUsed).second) unknown_.push_back(&words);
    }
  }

  void number_keys(Positions& positions) {
    const auto add = [&](int64_t key, const std::vector<int32_t>& tokens) {
      positions.keys.push_back(key);
      positions.key_token_begin.push_back(static_cast<int64_t>(positions.key_tokens.size()));
      positions.key_tokens.insert(positions.key_tokens.end(), tokens.begin(), tokens.end());
      return next_++;
    };
    for (size_t key = 0; key < key_rows_.size(); ++key) {
      if (key_rows_[key] != kUnused) key_rows_[key] = add(static_cast<int64_t>(key), schema_.key_tokens[key]);
    }
    for (const auto* words : unknown_) unknown_rows_[*words] = add(-1, *words);
    positions.key_token_begin.push_back(static_cast<int64_t>(positions.key_tokens.size()));
  }

  Signals signals_;
  const Schema& schema_;
  std::vector<int64_t> key_rows_, place_rows_, first_graph_;
  std::vector<const std::vector<int32_t>*> unknown_;  // keys that are not in the schema, as they come
  std::map<std::vector<int32_t>, int64_t> unknown_rows_;
  std::vector<int32_t> cells_;
  int64_t first_cell_ = 0;
  int64_t next_ = 0;
};

void append_graphs(const Signal& signal, size_t features, Random* signs, std::vector<float>& rows) {
  const size_t first = rows.size();
  rows.insert(rows.end(), signal.graph_positions.begin(), signal.graph_positions.end());
  if (!signs) return;
  for (size_t g = 0; g < signal.graph_begin.size(); ++g) {
    const size_t begin = first + static_cast<size_t>(signal.graph_begin[g]) * features;
    const size_t end = g + 1 < signal.graph_begin.size()
                           ? first + static_cast<size_t>(signal.graph_begin[g + 1]) * features
                           : rows.size();
    for (size_t e = 0; e < features; ++e) {
      if (signs->next() >> 63) continue;
      for (size_t i = begin + e; i < end; i += features) rows[i] = -rows[i];
    }
  }
}

}  // namespace

Positions hierarchical_positions(Signals signals, const Schema& schema, const CollateOptions& options) {
  PositionRows rows(signals, schema);
  Positions positions = rows.number();
  Random signs(options.flip_signs_seed.value_or(0));
  for (const Signal* signal : signals) {
    append_graphs(*signal, static_cast<size_t>(schema.graph_features), options.flip_signs_seed ? &signs : nullptr,
                  positions.graph);
  }
  for_each_level_part(signals, [&](size_t tree, size_t first, size_t last) {
    for (size_t n = first; n < last; ++n) positions.index.push_back(rows.row(tree, n));
  });
  return positions;
}

Positions flat_positions(Signals signals) {
  Positions positions;
  positions.key_token_begin = {0};
  positions.index.assign(signals.size(), -1);
  int64_t most = 0;
  for (const Signal* signal : signals) {
    most = std::max(most, signal->num_leaves());
    for (int64_t leaf = 0; leaf < signal->num_leaves(); ++leaf) positions.index.push_back(leaf);
  }
  for (int64_t place = 0; place < most; ++place) positions.places.push_back(place);
  return positions;
}

}  // namespace ramify::signal
