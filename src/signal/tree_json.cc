#include "signal/tree_json.h"

#include <nlohmann/json.hpp>

namespace ramify::signal {
namespace {

// [nodes]; children follow their parents, so sums are complete on the way back.
std::vector<double> node_mass(const Signal& signal, std::span<const double> leaf_mass) {
  std::vector<double> mass(signal.children.size());
  const std::vector<int32_t> leaves = leaf_nodes(signal);
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) mass[static_cast<size_t>(leaves[leaf])] = leaf_mass[leaf];
  size_t child = mass.size();
  for (size_t n = mass.size(); n-- > 0;) {
    for (int32_t c = 0; c < signal.children[n]; ++c) mass[n] += mass[--child];
  }
  return mass;
}

}  // namespace

nlohmann::json tree_json(const Signal& signal, std::span<const double> leaf_mass) {
  using nlohmann::json;
  const std::vector<double> mass = leaf_mass.empty() ? std::vector<double>() : node_mass(signal, leaf_mass);
  return fold_tree<json>(signal, [&](size_t node, int64_t leaves, std::vector<json> children) {
    const NodeLabel& label = signal.labels[node];
    json tree = {{"label", label.label}, {"kind", label.kind}, {"leaves", leaves}};
    if (!label.text.empty()) tree["text"] = label.text;
    if (!mass.empty()) tree["mass"] = mass[node];
    if (!children.empty()) tree["children"] = std::move(children);
    return tree;
  });
}

}  // namespace ramify::signal
