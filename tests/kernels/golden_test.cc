// The reference against the values of an independent implementation (tests/data/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/reference/attention.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

using nlohmann::json;

std::vector<double> flatten(const json& rows) {
  std::vector<double> values;
  for (const json& row : rows) {
    for (const json& value : row) values.push_back(value.get<double>());
  }
  return values;
}

// A case's tree, with a position vector for every node in the order of the forest.
struct GoldenTree {
  Forest forest;
  std::vector<double> positions;
  std::vector<int64_t> position_index;
  int64_t position_dim = 0;
};

GoldenTree read_tree(const json& root) {
  std::vector<int64_t> parents;
  std::vector<const json*> nodes;
  std::vector<std::pair<const json*, int64_t>> open = {{&root, -1}};  // depth first, the leftmost on top
  while (!open.empty()) {
    const auto [node, parent] = open.back();
    open.pop_back();
    const auto number = static_cast<int64_t>(nodes.size());
    nodes.push_back(node);
    parents.push_back(parent);
    if (!node->contains("children")) continue;
    const json& children = node->at("children");
    for (size_t c = children.size(); c-- > 0;) open.push_back({&children[c], number});
  }
  const ParentForest built = from_parents(parents);
  GoldenTree tree;
  tree.forest = built.forest;
  for (const json* node : nodes) {
    if (node->contains("eps")) tree.position_dim = static_cast<int64_t>(node->at("eps").size());
  }
  tree.position_index.assign(nodes.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (!nodes[n]->contains("eps")) continue;
    tree.position_index[built.node_of_input[n]] =
        static_cast<int64_t>(tree.positions.size()) / std::max<int64_t>(tree.position_dim, 1);
    for (const json& value : nodes[n]->at("eps")) tree.positions.push_back(value.get<double>());
  }
  return tree;
}

double magnitude(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << "entry " << i;
}

void check_mode(const json& golden, const json& mode, const GoldenTree& tree) {
  const auto q = flatten(golden["q"]), k = flatten(golden["k"]), v = flatten(golden["v"]);
  const json& options = mode["options"];
  const std::string mask = options.value("mask", "");
  const std::vector<double> alpha = {options.value("alpha", 1.0)};
  reference::AttentionParams params;
  params.forest = tree.forest;
  params.dim = static_cast<int64_t>(golden["q"][0].size());
  params.value_dim = static_cast<int64_t>(golden["v"][0].size());
  params.position_dim = tree.position_dim;
  params.q = q, params.k = k, params.v = v;
  params.positions = tree.positions, params.position_index = tree.position_index;
  params.scale = 1 / std::sqrt(static_cast<double>(params.dim));
  params.include_self = options.value("include_self", false);
  params.tie = options.value("tie", "block") == "none" ? Tie::none : Tie::block;
  params.causal = mask == "block_causal" ? Causal::block : mask == "prefix_causal" ? Causal::prefix : Causal::none;
  params.alpha = alpha;
  expect_near(reference::attention(params).out, flatten(mode["out"]), 1e-9);
  if (!mode.contains("grad_q")) return;

  const auto gradients =
      reference::attention_backward(params, flatten(golden["grad_out"]), std::vector<double>(1, 0.0));
  const auto grad_q = flatten(mode["grad_q"]), grad_k = flatten(mode["grad_k"]), grad_v = flatten(mode["grad_v"]);
  const double tolerance = 1e-6 * std::max({magnitude(grad_q), magnitude(grad_k), magnitude(grad_v)});
  expect_near(gradients.q, grad_q, tolerance);
  expect_near(gradients.k, grad_k, tolerance);
  expect_near(gradients.v, grad_v, tolerance);
}

TEST(Golden, ReferenceReproducesAllCasesAndModes) {
  std::ifstream file(RAMIFY_TEST_DATA "/attention_golden.json");
  ASSERT_TRUE(file) << "no " RAMIFY_TEST_DATA "/attention_golden.json";
  const json cases = json::parse(file)["cases"];
  ASSERT_EQ(cases.size(), 60);
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenTree tree = read_tree(cases[i]["tree"]);
    ASSERT_EQ(cases[i]["modes"].size(), 10);
    for (const json& mode : cases[i]["modes"]) {
      SCOPED_TRACE("case " + std::to_string(i) + " " + mode["options"].dump());
      check_mode(cases[i], mode, tree);
    }
  }
}

}  // namespace
}  // namespace ramify
