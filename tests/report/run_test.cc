// Run folders as they are read: what is there, what may be missing, and what an error says.
#include "report/run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "generators/error_message.h"
#include "io/error.h"
#include "report/figures.h"
#include "report/page_text.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

template <class Call>
std::string error_of(Call&& call) {
  return testing::error_message<io::Error>(call);
}

TEST(Run, IsReadWhole) {
  const report::Run run = read_run(kRuns + "hierarchical/");
  EXPECT_EQ(run.name, "hierarchical");
  EXPECT_EQ(run.config.task, "classification");
  EXPECT_EQ(run.config.target, "group");
  EXPECT_EQ(run.config.train, "20news/train.jsonl");
  EXPECT_EQ(run.config.records, 10182);
  EXPECT_EQ(run.config.classes, 20);
  EXPECT_EQ(run.config.parameters, 3846656);
  EXPECT_EQ(run.config.seed, 0);
  EXPECT_TRUE(run.config.command.ends_with("--fields 'year=category; x'")) << run.config.command;
  EXPECT_EQ(run.metrics.size(), 36U);
  EXPECT_DOUBLE_EQ(run.metrics[5].epoch, 1);
  EXPECT_GT(figure(run.metrics[5].figures, "macro_f1"), 0.1);
  EXPECT_TRUE(std::isnan(figure(run.metrics[5].figures, "rate")));
  ASSERT_EQ(run.evaluations.size(), 2U);
  EXPECT_EQ(run.evaluations[0].split, "test");
  EXPECT_EQ(run.evaluations[0].confusion.size(), 20U);
  EXPECT_EQ(run.evaluations[0].per_class.size(), 20U);
  EXPECT_GT(run.peak_memory_bytes, 1e9);
  ASSERT_EQ(run.explanations.size(), 2U);
  EXPECT_EQ(run.explanations[1].truth, std::vector<std::string>{"comp.sys.mac.hardware"});
  EXPECT_EQ(run.explanations[1].probabilities[0].first, "comp.sys.ibm.pc.hardware");
  EXPECT_EQ(run.explanations[0].tree.children.size(), 8U);
  EXPECT_NEAR(run.explanations[0].tree.mass, 1, 1e-4);
  EXPECT_TRUE(run.notes.empty());
}

TEST(Run, SettingsAreFlat) {
  const auto settings = read_run(kRuns + "flat").config.settings;
  const auto value = [&](const std::string& name) {
    for (const auto& [each, text] : settings) {
      if (each == name) return text;
    }
    return std::string("none");
  };
  EXPECT_EQ(value("model.layers[0].heads"), "3");
  EXPECT_EQ(value("training.rate"), "0.001");
  EXPECT_EQ(value("data.train"), "20news/train.jsonl");
}

TEST(Run, ThatWasStoppedIsReadAsFarAsItWent) {
  const report::Run run = read_run(kRuns + "stopped");
  EXPECT_EQ(run.metrics.size(), 8U);
  EXPECT_TRUE(run.evaluations.empty());
  ASSERT_EQ(run.notes.size(), 2U);
  EXPECT_NE(run.notes[0].find("last line"), std::string::npos);
  EXPECT_NE(run.notes[1].find("evaluation.json"), std::string::npos);
}

TEST(Run, ThatIsNoneIsAnError) {
  EXPECT_EQ(error_of([] { read_run("nowhere"); }), "nowhere: expected a folder that `ramify train --out` wrote");
  EXPECT_EQ(error_of([] { read_run(RAMIFY_TEST_DATA); }),
            RAMIFY_TEST_DATA "/config.json: missing; expected a folder that `ramify train --out` wrote");
}

TEST(Run, SameNamesAreToldApartByTheirPaths) {
  const std::vector<report::Run> runs = read_runs({kRuns + "flat", kRuns + "none", kRuns + "../runs/flat"});
  EXPECT_EQ(runs[0].name, kRuns + "flat");
  EXPECT_EQ(runs[1].name, "none");
  EXPECT_EQ(runs[2].name, kRuns + "../runs/flat");
}

TEST(RunErrors, NameFileAndField) {
  const auto config = [](const std::string& text) { return error_of([&] { read_config(text, "c.json"); }); };
  EXPECT_EQ(config("{"), "c.json: not JSON at byte 2");
  EXPECT_EQ(config(""), "c.json: not JSON at byte 1");
  EXPECT_EQ(config("[]"), "c.json: expected an object, found array");
  EXPECT_EQ(config("{}"), "c.json: task: missing");
  EXPECT_EQ(config(R"({"task": "x"})"), "c.json: attention: missing");
  EXPECT_EQ(config(R"({"task": 3})"), "c.json: task: expected a text, found number");
  EXPECT_EQ(config(R"({"task": "x", "attention": "flat", "parameters": {"total": -1}})"),
            "c.json: parameters.total: expected a count, found number");
  EXPECT_EQ(config(R"({"task": "x", "attention": "flat", "classes": ["a", 1]})"),
            "c.json: classes[1]: expected a text, found number");
  EXPECT_EQ(config(R"({"task": 1e999})"), "c.json: holds a number out of range");
  EXPECT_EQ(config("{\"task\": \"\xff\"}").substr(0, 24), "c.json: not JSON at byte");

  const auto evaluation = [](const std::string& text) { return error_of([&] { read_evaluations(text, "e.json"); }); };
  EXPECT_EQ(evaluation(R"({"valid": 3})"), "e.json: valid: expected an object, found number");
  EXPECT_EQ(evaluation(R"({"valid": {}})"), "e.json: valid.records: missing");
  EXPECT_EQ(evaluation(R"({"valid": {"records": 2, "classes": ["a", "b"], "confusion": [[1, 0]]}})"),
            "e.json: valid.confusion: 1 rows, 2 classes; expected a row a class");
  EXPECT_EQ(evaluation(R"({"valid": {"records": 2, "classes": ["a", "b"], "confusion": [[1, 0], [1]]}})"),
            "e.json: valid.confusion[1]: 1 counts, 2 classes; expected a count a class");
  EXPECT_EQ(evaluation(R"({"valid": {"records": 2, "classes": ["a"], "confusion": [["x"]]}})"),
            "e.json: valid.confusion[0][0]: expected a number, found string");
  EXPECT_EQ(evaluation(R"({"test": {"records": 2, "per_class": [{"class": "a"}]}})"),
            "e.json: test.per_class[0].precision: missing");
  EXPECT_EQ(evaluation(R"({"test": {"records": 2, "pairs": [[1, 2], [3]]}})"),
            "e.json: test.pairs[1]: expected a truth and a prediction");

  const auto explanations = [](const std::string& text) {
    return error_of([&] { read_explanations(text, "x.json"); });
  };
  EXPECT_EQ(explanations("{}"), "x.json: records: missing");
  EXPECT_EQ(explanations(R"({"records": [{"line": 1}]})"), "x.json: records[0].tree: missing");
  EXPECT_EQ(explanations(R"({"records": [{"line": 1, "tree": {"kind": "text", "mass": 7}}]})"),
            "x.json: records[0].tree.mass: 7; expected a share from 0 to 1");
  EXPECT_EQ(explanations(R"({"records": [{"line": 1, "tree": {"kind": "text", "children": [{"label": "a"}]}}]})"),
            "x.json: records[0].tree (a node inside).kind: missing");
  EXPECT_EQ(explanations(R"({"records": [{"line": 1, "tree": {"kind": "text", "children": 5}}]})"),
            "x.json: records[0].tree.children: expected a list, found number");
}

TEST(RunErrors, OfMetricsNameTheLine) {
  std::vector<std::string> notes;
  const auto metrics = [&](const std::string& text) { return error_of([&] { read_metrics(text, "m.jsonl", notes); }); };
  const std::string good = R"({"split": "train", "step": 1, "loss": 2})"
                           "\n";
  EXPECT_EQ(metrics(good + "{\n" + good), "m.jsonl:2: not JSON at byte 2");
  EXPECT_EQ(metrics(good + "\n" +
                    R"({"split": "train"})"
                    "\n"),
            "m.jsonl:3: step: missing");
  EXPECT_EQ(metrics(R"({"split": "train", "step": 1, "loss": "low"})"
                    "\n"),
            "m.jsonl:1: loss: expected a number, found string");
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(read_metrics(good + good + "{\"sp", "m.jsonl", notes).size(), 2U);
  EXPECT_EQ(notes.size(), 1U);
}

TEST(Run, AnswersMayBeLists) {
  const report::Run items = read_run(kRuns + "items"), labels = read_run(kRuns + "labels");
  EXPECT_EQ(items.config.target_of, "words");
  EXPECT_EQ(items.evaluations[0].items, 150);
  EXPECT_EQ(items.explanations[0].prediction.size(), 6U);
  EXPECT_EQ(items.explanations[0].truth->back(), "") << "not known";
  EXPECT_EQ(labels.explanations[1].truth->size(), 0U);
  EXPECT_FALSE(labels.explanations[2].truth.has_value());
  EXPECT_FALSE(labels.evaluations[0].items.has_value());
}

TEST(Figures, HaveOneOrderAndReadableNames) {
  EXPECT_EQ(in_order({"loss", "mine", "macro_f1", "accuracy", "mine", "micro_f1"}),
            (std::vector<std::string>{"micro_f1", "accuracy", "macro_f1", "loss", "mine"}));
  EXPECT_EQ(figure_name("macro_f1"), "Macro F1");
  EXPECT_EQ(figure_name("r2"), "R²");
  EXPECT_EQ(figure_name("of_my_own"), "Of my own");
  EXPECT_EQ(figure_text("micro_f1", 0.875), "87.5%");
  EXPECT_EQ(figure_text("rmse", 0.875), "0.8750");
  EXPECT_EQ(better_of("rmse"), Better::less);
  EXPECT_EQ(better_of("of_my_own"), Better::neither);
}

TEST(RunErrors, OfKnownFiguresAreFound) {
  std::vector<std::string> notes;
  EXPECT_EQ(error_of([&] {
              read_metrics(R"({"split": "valid", "step": 1, "micro_f1": "x"})"
                           "\n",
                           "m.jsonl", notes);
            }),
            "m.jsonl:1: micro_f1: expected a number, found string");
}

TEST(RunErrors, WhatOthersAddIsLeftAlone) {
  std::vector<std::string> notes;
  const auto lines = read_metrics(
      R"({"split": "train", "step": 1, "loss": null, "host": "a", "more": [1], "extra": 4})", "m.jsonl", notes);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(std::isnan(figure(lines[0].figures, "loss")));
  EXPECT_EQ(figure(lines[0].figures, "extra"), 4);
}

TEST(RunErrors, DepthIsBounded) {
  const auto nested = [](int64_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (int64_t i = 0; i < depth; ++i) text += open;
    text += "0";
    for (int64_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  EXPECT_EQ(error_of([&] { read_config(nested(100000, "[", "]"), "c.json"); }),
            "c.json: nested deeper than 4096 levels");
  EXPECT_EQ(error_of([&] { read_evaluations(nested(1000000, "{\"a\":", "}"), "e.json"); }),
            "e.json: nested deeper than 4096 levels");
  const auto tree = [&](int64_t depth) {
    std::string text = R"({"kind": "token", "text": "a"})";
    for (int64_t i = 0; i < depth; ++i) text = R"({"kind": "array", "children": [)" + text + "]}";
    return R"({"records": [{"line": 1, "tree": )" + text + "}]}";
  };
  EXPECT_EQ(read_explanations(tree(kMaxTreeDepth), "x.json").size(), 1U);
  EXPECT_EQ(error_of([&] { read_explanations(tree(kMaxTreeDepth + 1), "x.json"); }),
            "x.json: records[0].tree: deeper than 2000 levels");
}

}  // namespace
}  // namespace ramify::report
