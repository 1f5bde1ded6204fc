// Batches: their arrays, the flat form, the way back to a record's nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "signal/batch.h"
#include "signal/batch_text.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::pointers;
using testing::schema_of;
using testing::SharedSchema;
using Rows = std::vector<int64_t>;

struct Case {
  SharedSchema schema;
  std::vector<Signal> signals;

  Batch batch(const CollateOptions& options = {}) const { return collate(pointers(signals), *schema, options); }
};

Case make_case(const std::vector<std::string>& records, const SchemaOptions& options = {}) {
  Case result = {schema_of(records, options), {}};
  for (const std::string& record : records) result.signals.push_back(compile(result.schema, record));
  return result;
}

const std::vector<std::string> kRecords = {R"({"a": [1, 3], "b": true, "y": "u"})", R"({"b": false, "y": "v"})",
                                           R"({"a": [3], "b": true, "y": "u"})"};

TEST(Collate, PutsLevelsBehindEachOther) {
  const Batch batch = make_case(kRecords, {.target = "y"}).batch();
  EXPECT_EQ(Rows(batch.forest.first_child().begin(), batch.forest.first_child().end()),
            (Rows{3, 5, 6, 8, 10, 10, 10, 11, 11, 11, 11, 11}));
  EXPECT_EQ(Rows(batch.forest.tree_begin().begin(), batch.forest.tree_begin().end()), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(batch.forest.num_leaves(), 6);
  // leaves, record by record: 1 3 true | false | 3 true
  const LeafRows& categories = batch.leaves[1];
  EXPECT_EQ(categories.leaf, (Rows{2, 3, 5}));
  EXPECT_EQ(categories.id, (Rows{kGenericCategories + 1, kGenericCategories, kGenericCategories + 1}));
  EXPECT_EQ(categories.width, 0);
  EXPECT_TRUE(categories.value.empty());
  const LeafRows& numbers = batch.leaves[2];
  EXPECT_EQ(numbers.leaf, (Rows{0, 1, 4}));
  EXPECT_EQ(numbers.id, (Rows{1, 1, 1}));
  EXPECT_EQ(numbers.width, 1);
  ASSERT_EQ(numbers.value.size(), 3);
  EXPECT_EQ(numbers.value[1], numbers.value[2]);
  EXPECT_TRUE(batch.leaves[0].leaf.empty());  // no tokens
}

TEST(Collate, HasEachPositionOnce) {
  const Case records = make_case(kRecords, {.target = "y"});
  const Positions positions = records.batch().positions;
  EXPECT_EQ(positions.keys, (Rows{0, 1}));
  EXPECT_EQ(positions.places, (Rows{0, 1}));
  EXPECT_TRUE(positions.cells.empty());
  EXPECT_TRUE(positions.graph.empty());
  // roots, then a b | b | a b, then [0] [1] | [0]
  EXPECT_EQ(positions.index, (Rows{-1, -1, -1, 0, 1, 1, 0, 1, 2, 3, 2}));
  ASSERT_EQ(positions.key_token_begin, (Rows{0, 1, 2}));
  EXPECT_EQ(records.schema->tokenizer->token(static_cast<int32_t>(positions.key_tokens[1])), "b");
}

TEST(Collate, UnknownKeysAreOneRowEach) {
  Case records = make_case({R"({"a": 1, "redFox": 2})"});
  records.signals = {compile(records.schema, R"({"a": 1, "fox": 1, "red": 1})"),
                     compile(records.schema, R"({"Red": 1})")};
  const Positions positions = records.batch().positions;
  EXPECT_EQ(positions.keys, (Rows{0, -1, -1}));
  EXPECT_EQ(positions.index, (Rows{-1, -1, 0, 1, 2, 2}));
  EXPECT_EQ(records.schema->tokenizer->token(static_cast<int32_t>(positions.key_tokens[1])), "fox");
}

TEST(Collate, FlatIsOneFamilyOfAllLeaves) {
  const Case records = make_case(kRecords, {.target = "y"});
  const Batch batch = records.batch({.structure = Structure::flat});
  const Batch deep = records.batch();
  EXPECT_EQ(Rows(batch.forest.first_child().begin(), batch.forest.first_child().end()),
            (Rows{3, 6, 7, 9, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(batch.positions.places, (Rows{0, 1, 2}));
  EXPECT_EQ(batch.positions.index, (Rows{-1, -1, -1, 0, 1, 2, 0, 0, 1}));
  EXPECT_EQ(batch.positions.key_token_begin, Rows{0});
  EXPECT_EQ(batch.targets.leaf_begin, deep.targets.leaf_begin);
  EXPECT_EQ(batch.targets.classes, deep.targets.classes);
  for (size_t m = 0; m < deep.leaves.size(); ++m) {
    EXPECT_EQ(batch.leaves[m].leaf, deep.leaves[m].leaf);
    EXPECT_EQ(batch.leaves[m].id, deep.leaves[m].id);
    EXPECT_EQ(batch.leaves[m].value, deep.leaves[m].value);
  }
}

TEST(Collate, BareLeavesAreTrees) {
  const Case numbers = make_case({"1", "2", "[3, 4]"});
  EXPECT_EQ(numbers.batch().forest.num_nodes(), 5);
  const Batch flat = numbers.batch({.structure = Structure::flat});
  EXPECT_EQ(flat.forest.num_nodes(), 3 + 4);
  EXPECT_EQ(flat.forest.num_leaves(), 4);
}

TEST(Collate, ABatchOfNothing) {
  const Case records = make_case(kRecords);
  for (const Structure structure : {Structure::hierarchical, Structure::flat}) {
    const Batch batch = collate({}, *records.schema, structure);
    EXPECT_EQ(batch.forest.num_trees(), 0);
    EXPECT_EQ(batch.forest.num_nodes(), 0);
  }
}

TEST(Collate, TargetsOfEveryTask) {
  const Targets classes = make_case(kRecords, {.target = "y"}).batch().targets;
  EXPECT_EQ(classes.classes, (Rows{0, 1, 0}));
  EXPECT_EQ(classes.leaf_begin, (Rows{0, 3, 4}));
  EXPECT_EQ(classes.leaf_end, (Rows{3, 4, 6}));
  EXPECT_TRUE(classes.values.empty());

  const Targets values = make_case({R"({"x": 1, "y": 0.5})", R"({"x": 1, "y": -2})"}, {.target = "y"}).batch().targets;
  EXPECT_EQ(values.values, (std::vector<float>{1, -1}));  // in deviations from the mean
  EXPECT_TRUE(values.classes.empty());

  const Targets labels =
      make_case({R"({"x": 1, "y": ["c", "a"]})", R"({"x": 1, "y": []})", R"({"x": 1, "y": ["b"]})"}, {.target = "y"})
          .batch()
          .targets;
  EXPECT_EQ(labels.values, (std::vector<float>{1, 0, 1, 0, 0, 0, 0, 1, 0}));

  const Targets nodes = make_case({R"({"z": 1, "x": [1, [2, 3]], "y": ["b", "a"]})", R"({"x": [7], "y": [null]})"},
                                  {.target = "y", .target_of = "x"})
                            .batch()
                            .targets;
  EXPECT_EQ(nodes.classes, (Rows{1, 0, -1}));
  EXPECT_EQ(nodes.leaf_begin, (Rows{1, 2, 4}));
  EXPECT_EQ(nodes.leaf_end, (Rows{2, 4, 5}));

  const Targets none = make_case({R"({"x": 1})"}).batch().targets;
  EXPECT_EQ(none.leaf_begin, Rows{0});
  EXPECT_TRUE(none.classes.empty() && none.values.empty());
}

TEST(Collate, UnknownTargetsAreMarked) {
  Case records = make_case({R"({"x": 1, "y": 0.5})"}, {.target = "y"});
  records.signals = {compile(records.schema, R"({"x": 1})", {.target = TargetUse::optional})};
  EXPECT_TRUE(std::isnan(records.batch().targets.values[0]));
  Case classes = make_case(kRecords, {.target = "y"});
  classes.signals = {compile(classes.schema, R"({"b": true})", {.target = TargetUse::optional})};
  EXPECT_EQ(classes.batch().targets.classes, Rows{-1});
}

TEST(Collate, DenseLeavesAreFloats) {
  const Case records = make_case({R"([{"$vector": [1, 2]}, 5, {"$vector": [3, 4]}])"});
  const Batch batch = records.batch();
  EXPECT_EQ(batch.leaves[3].value, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(batch.leaves[3].leaf, (Rows{0, 2}));
  EXPECT_EQ(batch.leaves[3].width, 2);
  EXPECT_TRUE(batch.leaves[3].id.empty());
}

TEST(Collate, SignsOfGraphsFlipTogether) {
  const std::string path = R"({"$graph": {"nodes": [1, 2, 3, 4], "edges": [[0, 1], [1, 2], [2, 3]]}})";
  const Case records = make_case({path, "[" + path + "," + path + "]"}, {.graph_features = 3});
  const std::vector<float> plain = records.batch().positions.graph;
  ASSERT_EQ(plain.size(), 3 * 4 * 3);
  int flipped = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> signs = records.batch({.flip_signs_seed = seed}).positions.graph;
    EXPECT_EQ(signs, records.batch({.flip_signs_seed = seed}).positions.graph);
    for (size_t graph = 0; graph < 3; ++graph) {
      for (size_t e = 0; e < 3; ++e) {
        const size_t first = graph * 12 + e;
        const float sign = signs[first] * plain[first] < 0 ? -1.F : 1.F;
        flipped += sign < 0;
        for (size_t n = 0; n < 4; ++n) EXPECT_EQ(signs[first + 3 * n], sign * plain[first + 3 * n]);
      }
    }
  }
  EXPECT_GT(flipped, 60);  // of 180, half of them on average
  EXPECT_LT(flipped, 120);
}

TEST(Signal, CountsLeaves) {
  const Case records = make_case(kRecords, {.target = "y"});
  EXPECT_EQ(leaf_counts(records.signals[0]), (std::vector<int32_t>{3, 2, 1, 1, 1}));
  EXPECT_EQ(leaf_nodes(records.signals[0]), (std::vector<int32_t>{3, 4, 2}));
}

}  // namespace
}  // namespace ramify::signal
