// Whole pages: of one run, of several, of runs with parts missing, and of hostile ones.
#include "report/report.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "report/class_comparison.h"
#include "report/comparison.h"
#include "report/curves.h"
#include "report/explanation.h"
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
        "Confusion", "Confused most", "What the model looked at", "line 4,071", "class=\"patches\"",
        "Command and settings", "largest class"}) {
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
  EXPECT_FALSE(has(html, "These runs differ in")) << "but for the attention, which is compared";
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

std::string comparison_of(const std::vector<report::Run>& runs) {
  return comparison_html(shown_runs(runs));
}

std::string differences_in(const std::vector<report::Run>& runs) {
  return differences_of(shown_runs(runs));
}

// A run of the same settings but for some text of its config.json.
report::Run with_config(report::Run run, const std::string& before, const std::string& after) {
  std::string text = *read_if_there(kRuns + run.name + "/config.json");
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + after.size())) {
    text.replace(at, before.size(), after);
  }
  run.config = read_config(text, "config.json");
  run.name += " again";
  return run;
}

TEST(Comparison, NamesEveryKindOfDifference) {
  EXPECT_EQ(differences_in(read_runs({kRuns + "flat", kRuns + "none"})), "");
  EXPECT_EQ(differences_in(read_runs({kRuns + "flat", kRuns + "regression"})),
            "task (classification, regression), target (group, rent), number of classes (20, none), split evaluated "
            "(test, valid)");
  const report::Run flat = read_run(kRuns + "flat");
  EXPECT_EQ(differences_in({flat, with_config(flat, "\"seed\": 0", "\"seed\": 5")}), "");
  EXPECT_EQ(differences_in({flat, with_config(flat, "\"epochs\": 6", "\"epochs\": 30"),
                            with_config(flat, "\"rate\": 0.001", "\"rate\": 0.01")}),
            "epochs (6, 30), rate (0.001, 0.01)");
  EXPECT_EQ(differences_in({flat, with_config(flat, "20news/train.jsonl", "other.jsonl")}),
            "training data (20news/train.jsonl, other.jsonl)");
  EXPECT_EQ(differences_in({flat, with_config(flat, "alt.atheism", "alt.other")}), "other settings");
}

TEST(Comparison, AveragesOnlyRunsThatDifferInTheirSeed) {
  std::vector<report::Run> runs = read_runs({kRuns + "flat", kRuns + "none"});
  runs.push_back(with_config(runs[0], "\"seed\": 0", "\"seed\": 1"));
  for (auto& [name, value] : runs[2].evaluations[0].figures) value += name == "accuracy" ? 0.02 : 0;
  const std::string html = comparison_of(runs);
  EXPECT_TRUE(has(html, "Mean ± standard deviation of runs that differ only in their seed"));
  EXPECT_TRUE(has(html, "± 1.4%")) << html;
  EXPECT_TRUE(has(html, "flat, flat again"));
  EXPECT_EQ(count(html, "±"), 4U) << "in the title and the three figures of flat, none of a single run";
  runs[2] = with_config(runs[0], "\"epochs\": 6", "\"epochs\": 30");
  EXPECT_FALSE(has(comparison_of(runs), "±"));
}

TEST(Comparison, OfOtherRecordsRanksNone) {
  std::vector<report::Run> runs = read_runs({kRuns + "flat", kRuns + "none"});
  EXPECT_TRUE(has(comparison_of(runs), "<b><bdi>"));
  runs[1].evaluations[0].records += 1;
  runs[1].metrics.clear();
  runs[1].peak_memory_bytes = 0;
  EXPECT_TRUE(has(comparison_of(runs), "none is ranked above another"));
  EXPECT_FALSE(has(comparison_of(runs), "<b><bdi>"));
  EXPECT_FALSE(has(comparison_of(runs), "Against flat"));
  EXPECT_FALSE(has(class_comparison_html(shown_runs(runs)), "<b><bdi>"));
}

TEST(Comparison, TasksHaveTablesOfTheirOwn) {
  const std::string html = page_of({kRuns + "flat", kRuns + "regression", kRuns + "none"});
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(count(html, "<section class=\"problem\">"), 2U);
  EXPECT_TRUE(has(html, "2 tasks. Scores of different tasks cannot be compared"));
  EXPECT_TRUE(has(html, "Against flat"));
  EXPECT_FALSE(has(html, "These runs differ in")) << "not within a task";
  EXPECT_TRUE(has(html, "<i class=\"swatch c2\"></i><bdi>none</bdi>")) << "a run keeps its colour";
}

TEST(Comparison, SaysWhenTheRecordsChoseTheModel) {
  EXPECT_TRUE(has(page_of({kRuns + "labels"}), "There is no test split"));
  EXPECT_FALSE(has(page_of({kRuns + "flat"}), "There is no test split"));
  EXPECT_TRUE(has(comparison_of(read_runs({kRuns + "labels", kRuns + "labels"})), "chosen by these records"));
}

TEST(ClassComparison, OfOneValueHasNoRange) {
  std::vector<report::Run> runs = read_runs({kRuns + "flat", kRuns + "none"});
  runs[1].evaluations[0].per_class.resize(19);
  const std::string html = class_comparison_html(shown_runs(runs));
  EXPECT_TRUE(has(html, "data-order=\"-1e308\"><bdi></bdi></td><td class=\"drawing\">")) << html;
}

TEST(ClassComparison, DotsOfEqualScoresDoNotCoverEachOther) {
  std::vector<report::Run> runs = read_runs({kRuns + "flat", kRuns + "none"});
  for (report::Run& run : runs) run.evaluations[0].per_class = {{"one", 0.5, 0.5, 0.5, 10}};
  const std::string same = class_comparison_html(shown_runs(runs));
  EXPECT_TRUE(has(same, "cy=\"6\"") && has(same, "cy=\"13\"")) << same;
  runs[1].evaluations[0].per_class[0].f1 = 0.9;
  EXPECT_EQ(count(class_comparison_html(shown_runs(runs)), "cy=\"6\""), 2U);
}

TEST(Report, OfSeveralLabelsSaysWhatIsRight) {
  const std::string html = page_of({kRuns + "labels"});
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_TRUE(has(html, "<b>Micro F1</b> <span>best: 100.0% at epoch 4</span>"));
  EXPECT_TRUE(has(html, "all labels of a record right"));
  EXPECT_FALSE(has(html, "largest class"));
  EXPECT_TRUE(has(html, "predicted <b><em>no label</em></b>"));
  EXPECT_TRUE(has(html, "&#10003;</span> <b><em>no label</em></b>"));
  EXPECT_TRUE(has(html, "&#10007;</span> <b><bdi>ice, sea</bdi></b> <span class=\"soft\">truth</span> <bdi>sea"));
}

TEST(Report, OfItemsPutsLabelsOnThem) {
  report::Run run = read_run(kRuns + "items");
  const std::string html = report_page(std::span(&run, 1));
  EXPECT_EQ(HtmlCheck(html).error(), "");
  for (const std::string part :
       {"3 of 5 items right", "<b>150</b><small>of 30 records, valid", "On 150 items of 30 records of the valid split",
        "<button type=\"button\">Items</button>",
        "<span class=\"no\">&#10007;</span> <b><bdi>ADJ</bdi></b> <span "
        "class=\"soft\">truth</span> <bdi>NOUN</bdi>"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  EXPECT_EQ(count(html, "<span class=\"item\">"), 6U);
  run.config.target_of = "elsewhere";
  const std::string table = explanations_html(run);
  EXPECT_EQ(HtmlCheck(table).error(), "");
  EXPECT_FALSE(has(table, "<span class=\"item\">"));
  EXPECT_EQ(count(table, "✗ wrong"), 2U);
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
    run.config = {text, text, text, text, text, text, 3, 5, 7, 9, 1, 1, text, {{text, text}}, text};
    const bool has_items = runs.size() % 2 == 1;
    if (has_items) run.config.task = "nodes";
    run.metrics = {
        {"train", 1, nan, {{"loss", 1}, {text, 2}}}, {text, 2, nan, {{"loss", nan}}}, {"valid", 3, nan, {{"loss", 2}}}};
    run.evaluations = {
        {text, 4, 8, {{text, nan}, {"accuracy", 0.5}}, {text}, {{4}}, {{text, nan, nan, 0.5, 4}}, {{1, nan}}}};
    const TreeNode leaf = {text, text, text, 1, 1, {}};
    const TreeNode tree = has_items ? TreeNode{"", text, text, 1, 1, {{text, "array", "", 1, 1, {leaf}}}} : leaf;
    run.explanations = {{1, {text}, {{text + "2"}}, {{text, 0.5}, {text, nan}}, tree},
                        {2, {text, text}, {{text}}, {}, tree}};
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
