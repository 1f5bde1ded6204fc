// Positions of graph nodes: eigenvectors of the Laplacian, and graphs that cannot be.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "generators/error_message.h"
#include "generators/random_forest.h"
#include "signal/graph_positions.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::error_message;
using testing::schema_of;
using testing::SharedSchema;

using Edges = std::vector<std::pair<int64_t, int64_t>>;

void expect_near(const std::vector<float>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5) << i;
}

TEST(GraphPositions, OfAPathOfThree) {
  // eigenvalues 0, 1, 2 with (1, sqrt 2, 1) / 2, (1, 0, -1) / sqrt 2, (1, -sqrt 2, 1) / 2; times sqrt 3
  const double a = std::sqrt(1.5), b = std::sqrt(3) / 2;
  expect_near(laplacian_positions(3, {{0, 1}, {1, 2}}, 3), {a, -b, 0, 0, a, 0, -a, -b, 0});
}

TEST(GraphPositions, DirectionsCopiesAndLoopsDoNotCount) {
  EXPECT_EQ(laplacian_positions(3, {{0, 1}, {1, 2}}, 2),
            laplacian_positions(3, {{1, 0}, {2, 1}, {1, 2}, {0, 0}, {0, 1}}, 2));
}

TEST(GraphPositions, PartsThatAreNotConnectedAreToldApart) {
  // 0 has two eigenvectors; the one that is not trivial has one sign on each part
  const std::vector<float> positions = laplacian_positions(4, {{0, 1}, {2, 3}}, 1);
  EXPECT_NEAR(positions[0], positions[1], 1e-5);
  EXPECT_NEAR(positions[2], positions[3], 1e-5);
  EXPECT_NEAR(positions[0], -positions[2], 1e-5);
}

TEST(GraphPositions, AreZeroWhereThereIsNothingToTell) {
  EXPECT_EQ(laplacian_positions(3, {}, 2), std::vector<float>(6, 0.F));
  EXPECT_EQ(laplacian_positions(1, {{0, 0}}, 2), std::vector<float>(2, 0.F));
  EXPECT_TRUE(laplacian_positions(0, {}, 2).empty());
}

struct RandomGraph {
  int64_t nodes = 0;
  Edges edges;
};

RandomGraph random_graph(uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomGraph graph = {static_cast<int64_t>(2 + random() % 20), {}};
  const auto node = [&] { return static_cast<int64_t>(random() % static_cast<uint64_t>(graph.nodes)); };
  for (uint64_t e = random() % 40; e-- > 0;) graph.edges.emplace_back(node(), node());
  return graph;
}

// I - D^-1/2 A D^-1/2, row by row
std::vector<std::vector<double>> laplacian(const RandomGraph& graph) {
  const auto n = static_cast<size_t>(graph.nodes);
  std::vector<std::vector<double>> matrix(n, std::vector<double>(n, 0));
  std::vector<double> degree(n, 0);
  for (const auto& [a, b] : graph.edges) {
    if (a != b) matrix[a][b] = matrix[b][a] = -1;
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) degree[i] -= matrix[i][j];
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (matrix[i][j] != 0) matrix[i][j] /= std::sqrt(degree[i] * degree[j]);
    }
    matrix[i][i] = 1;
  }
  return matrix;
}

RC_GTEST_PROP(GraphPositions, AreEigenvectorsOfTheLaplacianInOrder, ()) {
  const RandomGraph graph = random_graph(*testing::seeds());
  const auto n = static_cast<size_t>(graph.nodes);
  const size_t k = 6;
  const std::vector<float> positions = laplacian_positions(graph.nodes, graph.edges, k);
  const auto matrix = laplacian(graph);
  double last = -1e-6;
  for (size_t e = 0; e < std::min(k, n - 1); ++e) {
    double norm = 0, value = 0, largest = 0;
    std::vector<double> image(n, 0);
    for (size_t i = 0; i < n; ++i) {
      const double own = positions[i * k + e];
      for (size_t j = 0; j < n; ++j) image[i] += matrix[i][j] * positions[j * k + e];
      norm += own * own;
      value += own * image[i];
      if (std::abs(own) > std::abs(largest) * (1 + 1e-5)) largest = own;
    }
    if (norm == 0) continue;  // no edges at all
    RC_ASSERT(std::abs(norm - static_cast<double>(n)) < 1e-3);
    RC_ASSERT(largest > 0);
    value /= norm;
    RC_ASSERT(value > last - 1e-4);
    last = value;
    for (size_t i = 0; i < n; ++i) RC_ASSERT(std::abs(image[i] - value * positions[i * k + e]) < 1e-3);
  }
}

TEST(Graphs, NodesAreAnySignalWithAPositionEach) {
  const std::string record =
      R"({"g": {"$graph": {"nodes": ["one two. Three", 4, {"a": 5}], "edges": [[0, 1], [1, 2]]}}, "z": 1})";
  const SharedSchema schema = schema_of({record}, {.graph_features = 2});
  const Signal signal = compile(schema, record);
  EXPECT_EQ(testing::text_of(signal, schema), "(g=(~(((one two .) (three))) ~(((4))) ~(a=#1:0)) z=#2:0)");
  EXPECT_EQ(signal.graph_positions, laplacian_positions(3, {{0, 1}, {1, 2}}, 2));
  EXPECT_EQ(signal.graph_begin, std::vector<int32_t>{0});
}

TEST(Graphs, SeveralInOneRecord) {
  const std::string record =
      R"([{"$graph": {"nodes": [1, 2], "edges": [[0, 1]]}}, {"$graph": {"edges": [[0, 2]], "nodes": [3, 4, 5]}}])";
  const SharedSchema schema = schema_of({record}, {.graph_features = 1});
  const Signal signal = compile(schema, record);
  EXPECT_EQ(signal.graph_begin, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(signal.place, (std::vector<int32_t>{0, 0, 1, 0, 1, 2, 3, 4}));
  EXPECT_EQ(signal.graph_positions.size(), 5);
}

TEST(Graphs, BadOnesAreBadRecords) {
  const SharedSchema schema = schema_of({R"({"g": {"$graph": {"nodes": [1, 2], "edges": [[0, 1]]}}})"});
  const auto bad = [&](const std::string& nodes, const std::string& edges) {
    const std::string record = R"({"g": {"$graph": {"nodes": )" + nodes + R"(, "edges": )" + edges + "}}}";
    return error_message<BadRecord>([&] { compile(schema, record); });
  };
  EXPECT_EQ(bad("[1, 2]", "[[0, 2]]"), "field g is a $graph of 2 nodes; edge 0 has another end than 0 to 1");
  EXPECT_EQ(bad("[1, 2]", "[[0, 1], [-1, 0]]"), "field g is a $graph of 2 nodes; edge 1 has another end than 0 to 1");
  EXPECT_EQ(bad("[1, 2]", "[[0, 0.5]]"), "field g is a $graph of 2 nodes; edge 0 has another end than 0 to 1");
  EXPECT_EQ(bad("[1, 2]", "[[0, 1, 1]]"), "field g is a $graph whose edge 0 is no pair of nodes");
  EXPECT_EQ(bad("[1, 2]", "[3]"), "field g is a $graph whose edge 0 is no pair of nodes");
  std::string many = "[0";
  for (int i = 0; i < 512; ++i) many += ",0";
  EXPECT_EQ(bad(many + "]", "[]"), "field g is a $graph of 513 nodes; at most 512 are allowed");
}

}  // namespace
}  // namespace ramify::signal
