#include "signal/statistics.h"

#include <cmath>

namespace ramify::signal {

int64_t Sizes::quantile(double share) const {
  const auto wanted = std::ceil(share * static_cast<double>(count_));
  int64_t passed = 0;
  for (const auto& [size, times] : times_) {
    passed += times;
    if (static_cast<double>(passed) >= wanted) return size;
  }
  return 0;
}

void SignalStatistics::add(const Signal& signal) {
  ++records;
  truncated += signal.truncated;
  leaves.add(signal.num_leaves());
  nodes.add(signal.num_nodes());
  depth.add(signal.num_levels() - 1);
  size_t child = 1;
  for (const int32_t children : signal.children) {
    if (children == 0) continue;
    families[static_cast<size_t>(signal.domain[child])].add(children);
    child += static_cast<size_t>(children);
  }
  for (const uint8_t modality : signal.modality) {
    if (modality >= leaves_of_modality.size()) leaves_of_modality.resize(modality + size_t{1}, 0);
    ++leaves_of_modality[modality];
  }
}

}  // namespace ramify::signal
