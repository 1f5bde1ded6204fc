// What is to be predicted: which task it is, how it is read, and when a record is of no use.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "signal/dataset.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::error_message;
using testing::schema_of;
using testing::SharedSchema;
using testing::TemporaryFolder;
using testing::text_of;

using Strings = std::vector<std::string>;

Target target_of(const Strings& values, SchemaOptions options = {.target = "y"}) {
  Strings records;
  for (const std::string& value : values) records.push_back(R"({"x": [1, 2], "y": )" + value + "}");
  return schema_of(records, std::move(options))->target;
}

std::string bad(const SharedSchema& schema, const std::string& record) {
  return error_message<BadRecord>([&] { compile(schema, record); });
}

TEST(Target, TaskIsToldByTheValues) {
  EXPECT_EQ(target_of({R"("b")", R"("a")"}).task, Task::classification);
  EXPECT_EQ(target_of({"true", "false"}).task, Task::classification);
  EXPECT_EQ(target_of({"3", "1", "3"}).task, Task::classification);
  EXPECT_EQ(target_of({"1.5", "2"}).task, Task::regression);
  EXPECT_EQ(target_of({R"(["b", "a"])", "[]"}).task, Task::multilabel);
  EXPECT_EQ(target_of({R"(["b", "a"])"}, {.target = "y", .target_of = "x"}).task, Task::nodes);
  Strings many;
  for (int i = 0; i < 21; ++i) many.push_back(std::to_string(i));
  EXPECT_EQ(target_of(many).task, Task::regression);
  many.pop_back();
  EXPECT_EQ(target_of(many).task, Task::classification);
}

TEST(Target, TaskCanBeSaid) {
  EXPECT_EQ(target_of({"3", "1"}, {.target = "y", .task = Task::regression}).task, Task::regression);
  EXPECT_EQ(target_of({"1.5", "2"}, {.target = "y", .task = Task::classification}).classes, (Strings{"1.5", "2"}));
  const auto message = [&](const Strings& values, Task task) {
    return error_message<BadRecord>([&] { target_of(values, {.target = "y", .task = task}); });
  };
  EXPECT_EQ(message({R"("a")"}, Task::regression),
            "the target y is a string, expected a number for the task regression");
  EXPECT_EQ(message({"[1]"}, Task::classification),
            "the target y is an array, which does not fit the task classification");
  EXPECT_EQ(message({"1"}, Task::multilabel), "the target y is no array, which does not fit the task multilabel");
}

// The first record, or the task, says whether it is an array.
TEST(Target, RecordsUnlikeTheFirstAreBad) {
  EXPECT_EQ(error_message<BadRecord>([] {
              target_of({R"("a")", R"(["b"])"});
            }),
            "the target y is an array, in the records before it is none");
  EXPECT_EQ(error_message<BadRecord>([] {
              target_of({R"(["b"])", R"("a")"});
            }),
            "the target y is a string, in the records before it is an array");
}

TEST(Target, RecordsUnlikeTheFirstCanBeSkipped) {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "a.jsonl", "{\"x\": 1, \"y\": \"a\"}\n{\"x\": 1, \"y\": [\"b\", \"c\"]}\n{\"x\": 1, \"y\": \"d\"}\n");
  EXPECT_EQ(error_message<io::Error>([&] { infer_schema({file}, {.target = "y"}); }),
            file + ":2: the target y is an array, in the records before it is none");
  EXPECT_EQ(error_message<io::Error>([&] { infer_schema({file}, {.target = "y", .task = Task::multilabel}); }),
            file + ":1: the target y is no array, which does not fit the task multilabel");
  const auto schema = std::make_shared<const Schema>(infer_schema({file}, {.target = "y", .on_bad = OnBad::skip}));
  EXPECT_EQ(schema->target.classes, (Strings{"a", "d"}));
  const Dataset dataset = Dataset::read({file}, schema, {.on_bad = OnBad::skip});
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.bad().messages, (Strings{file + ":2: the target y has an array, expected a class"}));
  const Schema lists = infer_schema({file}, {.target = "y", .task = Task::multilabel, .on_bad = OnBad::skip});
  EXPECT_EQ(lists.target.classes, (Strings{"b", "c"}));
}

TEST(Target, OfABadRecordNothingIsCounted) {
  SchemaInference inference({.target = "y"});
  inference.add(R"({"x": 1, "y": ["a"]})");
  EXPECT_THROW(inference.add(R"({"x": 1, "y": ["b", null]})"), BadRecord);
  EXPECT_EQ(inference.finish().target.classes, Strings{"a"});
}

TEST(Target, NumbersWithAFewOthersAreNoted) {
  const auto notes = [](const Strings& values, SchemaOptions options) {
    SchemaInference inference(std::move(options));
    int64_t line = 0;
    for (const std::string& value : values) inference.add(R"({"x": 1.5, "y": )" + value + "}", {"a.jsonl", ++line});
    return inference.finish().notes;
  };
  EXPECT_EQ(notes({"1.5", "2.5", R"("N/A")", "2"}, {.target = "y"}),
            Strings{"y: 3 numbers, 1 string (a.jsonl:3): these are classes; with --task regression only numbers are "
                    "taken"});
  EXPECT_EQ(notes({"1.5", "2.5", R"("N/A")"}, {.target = "y", .task = Task::classification}), Strings{});
  EXPECT_EQ(notes({"1", "2", R"("N/A")"}, {.target = "y"}), Strings{});  // few integers are classes
}

TEST(Target, ClassesAreSorted) {
  EXPECT_EQ(target_of({"10", "9", "2"}).classes, (Strings{"2", "9", "10"}));
  EXPECT_EQ(target_of({R"("b")", "10", R"("a")", "9", "true"}).classes, (Strings{"9", "10", "a", "b", "true"}));
}

TEST(Target, RegressionKnowsMeanAndDeviation) {
  const Target target = target_of({"1.0", "3.0", "1.0", "3.0"}, {.target = "y", .task = Task::regression});
  EXPECT_DOUBLE_EQ(target.mean, 2);
  EXPECT_DOUBLE_EQ(target.deviation, 1);
}

TEST(Target, IsNoPartOfTheSignal) {
  const SharedSchema schema = schema_of({R"({"meta": {"kind": "a", "n": 1}})"}, {.target = "meta.kind"});
  const Signal signal = compile(schema, R"({"meta": {"kind": "a", "n": 1}})");
  EXPECT_EQ(text_of(signal, schema), "(meta=(n=#1:0))");
  EXPECT_TRUE(signal.target.known);
  EXPECT_EQ(signal.target.classes, std::vector<int32_t>{0});
  for (const Field& field : schema->fields) EXPECT_NE(field.path, "meta.kind");
}

TEST(Target, MustBeThere) {
  const SharedSchema schema = schema_of({R"({"x": 1, "y": "a"})", R"({"x": 1, "y": "b"})"}, {.target = "y"});
  EXPECT_EQ(bad(schema, R"({"x": 1})"), "the target y is missing");
  EXPECT_EQ(bad(schema, R"({"x": 1, "y": null})"), "the target y has null, expected a class");
  EXPECT_EQ(bad(schema, "3"), "the record is a number, so that the target y is missing; expected an object");
  EXPECT_EQ(
      bad(schema, "[1]"),
      "the record is an array, so that the target y is missing; expected an object, one a line: jq -c '.[]' makes "
      "that of one array");
}

TEST(Target, ThatIsMissingIsLookedFor) {
  const auto message = [](const std::string& record, const std::string& target) {
    return error_message<BadRecord>([&] { schema_of({record}, {.target = target}); });
  };
  EXPECT_EQ(message(R"({"text": 1, "label": 2})", "lable"), "the target lable is missing; did you mean label?");
  EXPECT_EQ(message(R"({"meta": {"kind": 1, "size": 2}})", "meta.knid"),
            "the target meta.knid is missing; did you mean meta.kind?");
  EXPECT_EQ(message(R"({"text": 1, "label": 2})", "colour"), "the target colour is missing; there is text, label");
  EXPECT_EQ(message(R"({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1})", "colour"),
            "the target colour is missing; there is a, b, c, d, e, f, g, h, …");
  EXPECT_EQ(message("{}", "y"), "the target y is missing");
  EXPECT_EQ(message(R"({"a": 1})", "a.b"), "the target a.b is missing");
  EXPECT_EQ(message("1", "y"), "the record is a number, so that the target y is missing; expected an object");
}

TEST(Target, IsNotNeededForPredicting) {
  const SharedSchema schema = schema_of({R"({"x": 1, "y": "a"})", R"({"x": 1, "y": "b"})"}, {.target = "y"});
  const auto known = [&](const std::string& record) {
    return compile(schema, record, {.target = TargetUse::optional}).target.known;
  };
  EXPECT_FALSE(known(R"({"x": 1})"));
  EXPECT_TRUE(known(R"({"x": 1, "y": "b"})"));
}

TEST(Target, MayBeOfAClassThatTrainingDidNotHave) {
  const SharedSchema schema = schema_of({R"({"x": 1, "y": "a"})", R"({"x": 1, "y": "b"})"}, {.target = "y"});
  EXPECT_EQ(compile(schema, R"({"x": 1, "y": "c"})").target.classes, std::vector<int32_t>{kUnseenClass});
  const SharedSchema labels = schema_of({R"({"x": 1, "y": ["a"]})", R"({"x": 1, "y": ["b"]})"}, {.target = "y"});
  EXPECT_EQ(bad(labels, R"({"x": 1, "y": ["c"]})"),
            "the target y is 'c', which is none of the 2 classes known from training");
}

TEST(Target, RegressionTakesNumbersOnly) {
  const SharedSchema schema = schema_of({R"({"x": 1, "y": 1.5})"}, {.target = "y"});
  EXPECT_DOUBLE_EQ(compile(schema, R"({"x": 1, "y": -7})").target.value, -7);
  EXPECT_EQ(bad(schema, R"({"x": 1, "y": "7"})"), "the target y is a string, expected a number");
}

TEST(Target, SeveralLabels) {
  const SharedSchema schema = schema_of({R"({"x": 1, "y": ["b", "a", "c"]})"}, {.target = "y"});
  EXPECT_EQ(compile(schema, R"({"x": 1, "y": ["c", "a", "c"]})").target.classes, (std::vector<int32_t>{0, 2}));
  EXPECT_TRUE(compile(schema, R"({"x": 1, "y": []})").target.known);
  EXPECT_EQ(bad(schema, R"({"x": 1, "y": "a"})"), "the target y is a string, expected an array");
}

const std::string kNodes = R"({"pre": 1, "s": ["one two.", [], "three"], "y": ["a", null, "b"], "post": 2})";

TEST(Target, LabelsOfItems) {
  const SharedSchema schema = schema_of({kNodes}, {.target = "y", .target_of = "s"});
  const Signal signal = compile(schema, kNodes);
  EXPECT_EQ(text_of(signal, schema), "(pre=#1:0 s=((((one two .))) <s[]=(empty)> (((three)))) post=#2:0)");
  EXPECT_EQ(signal.target.classes, (std::vector<int32_t>{0, -1, 1}));
  EXPECT_EQ(signal.target.leaf_begin, (std::vector<int32_t>{1, 4, 5}));
  EXPECT_EQ(signal.target.leaf_end, (std::vector<int32_t>{4, 5, 6}));
  const Signal unlabelled = compile(schema, R"({"s": ["x", "y"]})", {.target = TargetUse::optional});
  EXPECT_FALSE(unlabelled.target.known);
  EXPECT_EQ(unlabelled.target.leaf_begin, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(unlabelled.target.leaf_end, (std::vector<int32_t>{1, 2}));
}

TEST(Target, ItemsThatAreCutOffAreNotAskedFor) {
  const SharedSchema schema = schema_of({kNodes}, {.target = "y", .target_of = "s", .max_leaves = 3});
  const Signal signal = compile(schema, kNodes);
  EXPECT_TRUE(signal.truncated);
  EXPECT_EQ(signal.target.classes, (std::vector<int32_t>{0}));
  EXPECT_EQ(signal.target.leaf_begin, (std::vector<int32_t>{1}));
  EXPECT_EQ(signal.target.leaf_end, (std::vector<int32_t>{3}));
}

TEST(Target, LabelsOfItemsOfSetsAndGraphs) {
  const std::string set = R"({"s": {"$set": [1, 2]}, "y": ["a", "b"]})";
  const SharedSchema sets = schema_of({set}, {.target = "y", .target_of = "s"});
  EXPECT_EQ(compile(sets, set).target.leaf_begin, (std::vector<int32_t>{0, 1}));
  const std::string graph = R"({"s": {"$graph": {"edges": [[0, 1]], "nodes": [1, [2, 3]]}}, "y": ["a", "b"]})";
  const SharedSchema graphs = schema_of({graph}, {.target = "y", .target_of = "s"});
  EXPECT_EQ(compile(graphs, graph).target.leaf_end, (std::vector<int32_t>{1, 3}));
}

TEST(Target, LabelsOfItemsMustFit) {
  const SharedSchema schema = schema_of({kNodes}, {.target = "y", .target_of = "s"});
  EXPECT_EQ(bad(schema, R"({"s": ["x", "y"], "y": ["a"]})"), "the target y has 1 label, s has 2 items");
  EXPECT_EQ(bad(schema, R"({"y": ["a"]})"), "s, whose items are to be labelled, is no array here");
  EXPECT_EQ(bad(schema, R"({"s": "x", "y": ["a"]})"), "s, whose items are to be labelled, is no array here");
  EXPECT_EQ(bad(schema, R"({"s": ["x"], "y": "a"})"), "the target y is a string, expected an array");
}

TEST(Target, OptionsMustMakeSense) {
  const auto message = [](SchemaOptions options) {
    return error_message([&] { SchemaInference inference(std::move(options)); });
  };
  EXPECT_EQ(message({.target_of = "s"}), "target-of is given without a target");
  EXPECT_EQ(message({.target = "y", .target_of = "s", .task = Task::regression}),
            "target-of is for the task nodes only");
  EXPECT_EQ(message({.target = "y", .task = Task::nodes}),
            "the task nodes needs target-of: the array whose items the labels are for");
  EXPECT_EQ(message({.target = "a[].b"}), "the target a[].b is inside an array; expected keys only");
  EXPECT_NE(message({.target = "a..b"}).find("has an empty key"), std::string::npos);
  EXPECT_EQ(error_message<io::Error>([] { schema_of({kNodes}, {.target = "y", .target_of = "s", .ignore = {"s"}}); }),
            "the field s, which --target-of names, is left out");
}

TEST(Target, TooManyClassesAreRefused) {
  Strings values;
  for (int i = 0; i < 12; ++i) values.push_back("\"c" + std::to_string(i) + "\"");
  EXPECT_EQ(error_message<io::Error>([&] { target_of(values, {.target = "y", .max_classes = 10}); }),
            "the target y has more than 10 different values; expected classes, or numbers only");
}

}  // namespace
}  // namespace ramify::signal
