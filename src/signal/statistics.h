// What the records of a data set look like as trees.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "signal/signal.h"

namespace ramify::signal {

// Counts of sizes; there are few different ones.
class Sizes {
 public:
  void add(int64_t size, int64_t times = 1) { times_[size] += times, count_ += times, total_ += size * times; }
  int64_t count() const { return count_; }
  int64_t total() const { return total_; }
  // The smallest size that at least this share (0..1) of all do not exceed; 0 if there are none.
  int64_t quantile(double share) const;

 private:
  std::map<int64_t, int64_t> times_;
  int64_t count_ = 0;
  int64_t total_ = 0;
};

struct SignalStatistics {
  static constexpr size_t kDomains = 5;

  int64_t records = 0;
  int64_t truncated = 0;
  Sizes leaves, nodes, depth;               // of a record; depth: edges from its root to the deepest leaf
  std::array<Sizes, kDomains> families;     // children of a family, by the Domain of their places
  std::vector<int64_t> leaves_of_modality;  // [modalities]

  void add(const Signal& signal);
};

}  // namespace ramify::signal
