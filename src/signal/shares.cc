#include "signal/shares.h"

#include <algorithm>
#include <numeric>

namespace ramify::signal {

std::vector<int64_t> balanced_share(std::span<const int64_t> sizes, int64_t rank, int64_t ranks) {
  std::vector<int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (ranks <= 1) return order;
  std::ranges::stable_sort(order, std::greater(), [&](int64_t item) { return sizes[static_cast<size_t>(item)]; });
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0), taken;
  for (const int64_t item : order) {
    const auto least = std::ranges::min_element(load);
    *least += std::max<int64_t>(1, sizes[static_cast<size_t>(item)]);  // also what has no size is not all for one
    if (least - load.begin() == rank) taken.push_back(item);
  }
  std::ranges::sort(taken);
  return taken;
}

}  // namespace ramify::signal
