#include "signal/signal.h"

namespace ramify::signal {

std::vector<int32_t> leaf_counts(const Signal& signal) {
  std::vector<int32_t> counts(signal.children.size(), 0);
  size_t child = signal.children.size();  // the children of the nodes from n on begin here
  for (size_t n = signal.children.size(); n-- > 0;) {
    if (signal.children[n] == 0) counts[n] = 1;
    for (int32_t c = 0; c < signal.children[n]; ++c) counts[n] += counts[--child];
  }
  return counts;
}

std::vector<int32_t> leaf_nodes(const Signal& signal) {
  std::vector<int32_t> first_leaf = leaf_counts(signal);  // turned from counts into places on the way down
  std::vector<int32_t> nodes(signal.modality.size());
  size_t child = 1;
  first_leaf[0] = 0;
  for (size_t n = 0; n < signal.children.size(); ++n) {
    if (signal.children[n] == 0) nodes[static_cast<size_t>(first_leaf[n])] = static_cast<int32_t>(n);
    int32_t leaf = first_leaf[n];
    for (int32_t c = 0; c < signal.children[n]; ++c, ++child) {
      const int32_t count = first_leaf[child];
      first_leaf[child] = leaf;
      leaf += count;
    }
  }
  return nodes;
}

}  // namespace ramify::signal
