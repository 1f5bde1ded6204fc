// Whole pages: of one run, of several, of runs with parts missing, and of hostile ones.
#include "report/report.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "report/comparison.h"
#include "report/curves.h"
#include "report/html_check.h"
#include "report/json_file.h"
#include "report/page_text.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

std::string page_of(const std::vector<std::filesystem::path>& folders) {
  return report_page(read_runs(folders));
}

TEST(Report, OfOneRunHasAllItsParts) {
  const std::string html = page_of({kRuns + "hierarchical"});
  const HtmlCheck check(html);
  EXPECT_EQ(check.error(), "");
  for (const std::string part :
       {"<h1><bdi>hierarchical</bdi></h1>", "20 classes", "10,182 records", "3,846,656 parameters", "Learning curves",
        "Confusion", "Confused most", "What mattered", "line 4,071", "class=\"patches\"", "Command and settings",
        "largest class"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  EXPECT_GE(check.count("polyline"), 5);
}

TEST(Report, IsTheSameEveryTime) {
  EXPECT_EQ(page_of({kRuns + "flat", kRuns + "none"}), page_of({kRuns + "flat", kRuns + "none"}));
}

TEST(Report, OfSeveralRunsComparesThem) {
  const std::string html = page_of({kRuns + "hierarchical", kRuns + "flat", kRuns + "none"});
  EXPECT_EQ(HtmlCheck(html).error(), "");
  for (const std::string part : {"3 runs compared", "Against hierarchical", "points", "F1 of every class",
                                 "Best in bold", "<details class=\"run\" open>", "best: hierarchical"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  EXPECT_FALSE(has(html, "not alike"));
  EXPECT_FALSE(has(html, ">Attention<")) << "they are named after it";
}

TEST(Report, OfARegressionDrawsPredictionsAgainstTruth) {
  const std::string html = page_of({kRuns + "regression"});
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_TRUE(has(html, "Prediction against truth"));
  EXPECT_TRUE(has(html, "RMSE"));
  EXPECT_TRUE(has(html, "R\xC2\xB2"));
  EXPECT_TRUE(has(html, ">13.0625<"));
  EXPECT_EQ(HtmlCheck(html).count("rect"), 25);
}

TEST(Report, OfAStoppedRunSaysWhatIsMissing) {
  const std::string html = page_of({kRuns + "stopped"});
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_TRUE(has(html, "was cut off"));
  EXPECT_TRUE(has(html, "Not evaluated yet"));
  EXPECT_TRUE(has(html, "Learning curves"));
  EXPECT_EQ(HtmlCheck(page_of({kRuns + "stopped", kRuns + "regression"})).error(), "");
}

TEST(Report, OfAnEmptyRunIsAPage) {
  report::Run run;
  run.name = "new";
  run.config.task = "classification";
  EXPECT_EQ(HtmlCheck(report_page(std::span(&run, 1))).error(), "");
  const std::vector<report::Run> runs(3, run);
  EXPECT_EQ(HtmlCheck(report_page(runs)).error(), "");
}

TEST(Report, RunsOfOtherDataAreNotedAsSuch) {
  EXPECT_EQ(differences_of_data(read_runs({kRuns + "flat", kRuns + "regression"})),
            "task, target, number of classes, split evaluated");
  EXPECT_TRUE(has(page_of({kRuns + "flat", kRuns + "regression"}), "not alike in: task"));
}

TEST(Report, RunsOfOneAttentionHaveMeansAndDeviations) {
  std::vector<report::Run> runs = read_runs({kRuns + "flat", kRuns + "none"});
  runs.push_back(runs[0]);
  for (auto& [name, value] : runs[2].evaluations[0].figures) value += name == "accuracy" ? 0.02 : 0;
  const std::string html = comparison_html(runs);
  EXPECT_TRUE(has(html, "Mean ± standard deviation"));
  EXPECT_TRUE(has(html, "± 1.4%")) << html;
}

TEST(Report, TimeAndSpeedComeFromTheMetrics) {
  report::Run run;
  EXPECT_TRUE(std::isnan(training_seconds(run)));
  EXPECT_TRUE(std::isnan(leaves_per_second(run)));
  for (const double rate : {10.0, 30.0, 20.0}) run.metrics.push_back({"train", 1, 1, {{"leaves_per_second", rate}}});
  run.metrics.push_back({"valid", 1, 1, {{"seconds", 12.5}}});
  EXPECT_EQ(training_seconds(run), 12.5);
  EXPECT_EQ(leaves_per_second(run), 20);
}

TEST(Report, NothingFromDataLeavesItsPlace) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<report::Run> runs;
  for (const std::string& text : hostile_texts()) {
    report::Run run;
    run.name = text;
    run.config = {text, text, text, text, text, 3, 5, 7, 9, 1, 1, text, {{text, text}}};
    run.metrics = {
        {"train", 1, nan, {{"loss", 1}, {text, 2}}}, {text, 2, nan, {{"loss", nan}}}, {"valid", 3, nan, {{"loss", 2}}}};
    run.evaluations = {
        {text, 4, {{text, nan}, {"accuracy", 0.5}}, {text}, {{4}}, {{text, nan, nan, 0.5, 4}}, {{1, nan}}}};
    run.explanations = {{1, text, text, {text}, {{text, 0.5}, {text, nan}}, {text, text, text, 1, 1, {}}}};
    run.notes = {text};
    const std::string html = report_page(std::span(&run, 1));
    EXPECT_EQ(HtmlCheck(html).error(), "") << text.substr(0, 60);
    EXPECT_EQ(HtmlCheck(html).count("script"), 1);
    runs.push_back(std::move(run));
  }
  const std::string html = report_page(runs);
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(HtmlCheck(html).count("script"), 1);
}

// A few bytes of a file changed, cut out or doubled: a page that is still whole, or an error; nothing else.
RC_GTEST_PROP(ReportLaws, DamagedFilesAreReadOrRefused, ()) {
  for (const char* name : {"flat", "regression", "stopped"}) {
    report::Run run = read_run(kRuns + name);
    const auto damaged = [&](const char* file) {
      std::string text = read_if_there(kRuns + name + "/" + file).value_or("{}");
      for (int change = *rc::gen::inRange(1, 4); change > 0; --change) {
        const auto at = static_cast<size_t>(*rc::gen::inRange<int64_t>(0, std::ssize(text)));
        const int kind = *rc::gen::inRange(0, 3);
        if (kind == 0) text[at] = *rc::gen::element('"', '{', '}', '[', ']', ',', '-', '9', 'e', '\\', '\0', '<');
        if (kind == 1) text.erase(at, *rc::gen::inRange<size_t>(1, 30));
        if (kind == 2) text.insert(at, text.substr(at, *rc::gen::inRange<size_t>(1, 30)));
        if (text.empty()) break;
      }
      return text;
    };
    const auto attempt = [](const auto& read) {
      try {
        read();
      } catch (const io::Error&) {
      }
    };
    attempt([&] { run.config = read_config(damaged("config.json"), "c"); });
    attempt([&] { run.metrics = read_metrics(damaged("metrics.jsonl"), "m", run.notes); });
    attempt([&] { run.evaluations = read_evaluations(damaged("evaluation.json"), "e").splits; });
    attempt([&] { run.explanations = read_explanations(damaged("explanations.json"), "x"); });
    RC_ASSERT(HtmlCheck(report_page(std::span(&run, 1))).error() == "");
  }
}

}  // namespace
}  // namespace ramify::report
