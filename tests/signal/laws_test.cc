// What holds for any JSON: compiling never fails on what the schema was made of, trees are as large as the record, and
// a record in a batch is what it is alone.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "generators/random_forest.h"
#include "signal/batch.h"
#include "signal/batch_text.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using nlohmann::json;
using testing::BatchText;
using testing::compile;
using testing::pointers;
using testing::schema_of;
using testing::SharedSchema;

class RandomJson {
 public:
  explicit RandomJson(uint64_t seed) : random_(seed) {}

  // An object, so that it can have a target.
  json record() {
    json record = json::object();
    for (size_t i = below(6); i-- > 0;) record[key()] = value(4);
    record["y"] = std::string(1, static_cast<char>('a' + below(3)));
    return record;
  }

  json value(int depth) {
    switch (below(depth > 0 ? 12 : 7)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<int64_t>(below(1000)) - 500;
      case 3:
        return std::uniform_real_distribution<>(-1e3, 1e3)(random_);
      case 4:
      case 5:
        return text();
      case 6:
        return json{{"$vector", {0.5, below(9), -1}}};
      case 7:
        return json{{"$set", list(depth)}};
      case 8:
        return graph(depth);
      case 9: {
        json object = json::object();
        for (size_t i = below(4); i-- > 0;) object[key()] = value(depth - 1);
        return object;
      }
      default:
        return list(depth);
    }
  }

 private:
  size_t below(size_t n) { return random_() % n; }
  std::string key() { return "k" + std::to_string(below(5)); }

  std::string text() {
    static const char* const kParts[] = {"word", " ", "Zwei", ". ", "\n\n", "é", "!", " 3.5 ", "-", "the "};
    std::string text;
    for (size_t i = below(9); i-- > 0;) text += kParts[below(std::size(kParts))];
    return text;
  }
  json list(int depth) {
    json items = json::array();
    for (size_t i = below(5); i-- > 0;) items.push_back(value(depth - 1));
    return items;
  }
  json graph(int depth) {
    json nodes = list(depth), edges = json::array();
    for (size_t i = nodes.empty() ? 0 : below(6); i-- > 0;) edges.push_back({below(nodes.size()), below(nodes.size())});
    return {{"$graph", {{"nodes", nodes}, {"edges", edges}}}};
  }

  std::mt19937_64 random_;
};

std::vector<std::string> random_records(uint64_t seed, size_t count) {
  RandomJson random(seed);
  std::vector<std::string> records;
  for (size_t i = 0; i < count; ++i) records.push_back(random.record().dump());
  return records;
}

constexpr size_t kRecordCount = 40;

struct Compiled {
  SharedSchema schema;
  std::vector<Signal> signals;
};

Compiled compiled(const std::vector<std::string>& records, int64_t max_leaves) {
  Compiled result = {schema_of(records, {.target = "y", .max_leaves = max_leaves}), {}};
  for (const std::string& record : records)
    result.signals.push_back(compile(result.schema, record, {.labels = Labels::all}));
  return result;
}

void expect_sound(const Signal& signal, const Schema& schema) {
  const std::vector<Modality> modalities = schema.modalities();
  int64_t children = 1;
  for (const int32_t own : signal.children) children += own;
  RC_ASSERT(children == signal.num_nodes());
  RC_ASSERT(signal.level_begin.front() == 0);
  RC_ASSERT(signal.level_begin.back() == signal.num_nodes());
  RC_ASSERT(signal.num_leaves() >= 1);
  RC_ASSERT(signal.num_leaves() <= schema.max_leaves);
  RC_ASSERT(leaf_counts(signal)[0] == signal.num_leaves());
  RC_ASSERT(signal.labels.size() == signal.children.size());
  size_t child = 1;  // places count within each family
  for (const int32_t own : signal.children) {
    for (int32_t c = 0; c < own; ++c, ++child) {
      if (signal.domain[child] == Domain::sequence) RC_ASSERT(signal.place[child] == c);
    }
  }
  int64_t values = 0;
  for (size_t leaf = 0; leaf < signal.modality.size(); ++leaf) {
    const Modality& modality = modalities.at(signal.modality[leaf]);
    RC_ASSERT(signal.id[leaf] >= 0);
    if (modality.feature != Feature::dense) RC_ASSERT(signal.id[leaf] < modality.size);
    values += modality.feature == Feature::dense ? modality.size : modality.feature == Feature::numbers;
  }
  RC_ASSERT(values == static_cast<int64_t>(signal.values.size()));
  for (const NodeLabel& label : signal.labels) RC_ASSERT(!label.kind.empty());
}

RC_GTEST_PROP(SignalLaws, EveryRecordOfTheTrainingDataCompiles, ()) {
  const uint64_t seed = *testing::seeds();
  const int64_t max_leaves = seed % 2 == 0 ? 4096 : 7;
  const Compiled records = compiled(random_records(seed, kRecordCount), max_leaves);
  for (const Signal& signal : records.signals) expect_sound(signal, *records.schema);
}

RC_GTEST_PROP(SignalLaws, OtherRecordsCompileOrSayWhyNot, ()) {
  const uint64_t seed = *testing::seeds();
  const SharedSchema schema = schema_of(random_records(seed, 5), {.target = "y"});
  for (const std::string& record : random_records(seed + 1, kRecordCount)) {
    try {
      expect_sound(compile(schema, record, {.target = TargetUse::optional, .labels = Labels::all}), *schema);
    } catch (const BadRecord& error) {
      RC_ASSERT(std::string(error.what()).starts_with("field k"));
    }
  }
}

RC_GTEST_PROP(SignalLaws, ARecordInABatchIsWhatItIsAlone, ()) {
  const uint64_t seed = *testing::seeds();
  const Compiled records = compiled(random_records(seed, kRecordCount), seed % 3 == 0 ? 9 : 4096);
  const auto all = pointers(records.signals);
  for (const Structure structure : {Structure::hierarchical, Structure::flat}) {
    const Batch batch = collate(all, *records.schema, structure);
    // the forest's own checks
    const Forest& forest = batch.forest;
    const auto copy = [](std::span<const int64_t> values) {
      return std::vector<int64_t>(values.begin(), values.end());
    };
    Forest::from_arrays(copy(forest.first_child()), copy(forest.level_begin()), copy(forest.tree_begin()));
    RC_ASSERT(batch.positions.index.size() == static_cast<size_t>(forest.num_nodes()));
    const BatchText text(batch);
    for (size_t t = 0; t < all.size(); ++t) {
      const Batch alone = collate(std::span(all).subspan(t, 1), *records.schema, structure);
      RC_ASSERT(text.tree(static_cast<int64_t>(t)) == BatchText(alone).tree(0));
    }
  }
}

RC_GTEST_PROP(SignalLaws, StoredSchemasCompileTheSame, ()) {
  const std::vector<std::string> records = random_records(*testing::seeds(), kRecordCount);
  const SharedSchema schema = schema_of(records, {.target = "y"});
  const auto stored =
      std::make_shared<const Schema>(Schema::from_json(json::parse(schema->to_json().dump()), "stored"));
  for (const std::string& record : records) {
    RC_ASSERT(testing::text_of(compile(schema, record), schema) == testing::text_of(compile(stored, record), stored));
  }
}

RC_GTEST_PROP(SignalLaws, BrokenLinesAreMessages, ()) {
  const uint64_t seed = *testing::seeds();
  std::mt19937_64 random(seed);
  const std::vector<std::string> records = random_records(seed, kRecordCount);
  const SharedSchema schema = schema_of(records, {.target = "y"});
  for (std::string record : records) {
    for (int i = 0; i < 3; ++i) record[random() % record.size()] = static_cast<char>(random());
    try {
      compile(schema, record);
    } catch (const BadRecord& error) {
      RC_ASSERT(std::string(error.what()).size() < 1000);
    }
  }
}

}  // namespace
}  // namespace ramify::signal
