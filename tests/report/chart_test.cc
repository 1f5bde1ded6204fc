// Axes, curves, scatter and confusion: what is drawn, and that odd numbers do no harm.
#include "report/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "report/confusion.h"
#include "report/html.h"
#include "report/html_check.h"
#include "report/page_text.h"
#include "report/scatter.h"

namespace ramify::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Axis, HasRoundTicks) {
  const Axis axis = make_axis(0.13, 2.8, 5);
  EXPECT_EQ(axis.ticks, (std::vector<double>{0.5, 1, 1.5, 2, 2.5}));
  EXPECT_EQ(tick_text(1.5, axis, Scale::plain), "1.5");
  EXPECT_EQ(tick_text(0.5, make_axis(0.2, 0.9, 4), Scale::percent), "50%");
  EXPECT_EQ(tick_text(20000, make_axis(0, 90000, 4), Scale::count), "20 k");
}

TEST(Axis, AnyRangeHasTicks) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 0}, {1, 1}, {-3, -3}, {1e-300, 2e-300}, {1e29, 1e30}, {-1e30, 1e30}, {1, 1 + 1e-15}, {0, 1e-12}}) {
    const Axis axis = make_axis(low, high, 5);
    EXPECT_GE(axis.ticks.size(), 2U) << low << " " << high;
    EXPECT_LE(axis.ticks.size(), 20U) << low << " " << high;
    EXPECT_TRUE(std::isfinite(axis.place(low)));
    for (const double tick : axis.ticks) EXPECT_FALSE(tick_text(tick, axis, Scale::plain).empty());
  }
}

TEST(LineChart, DrawsALineForEachSeriesAndMarksFewPoints) {
  const Chart chart = {
      "Loss",
      "best",
      "epoch",
      Scale::plain,
      {{"train", 0, Stroke::faint, {{0, 3}, {1, 2}, {2, 1}}}, {"valid", 0, Stroke::strong, {{1, 2}, {2, 1}}}}};
  const std::string html = line_chart_html(chart);
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(count(html, "<polyline"), 2U);
  EXPECT_EQ(count(html, "<circle"), 2U);
  EXPECT_NE(html.find("data-values=\"1,2 2,1\""), std::string::npos);
}

TEST(LineChart, WhatIsNotFiniteIsAGap) {
  Series series = {"train", 0, Stroke::faint, {{0, 3}, {1, 2}, {2, kNan}, {3, kInfinity}, {4, 1e300}, {5, 1}, {6, 1}}};
  const std::string html = line_chart_html({"Loss", "", "step", Scale::plain, {series}});
  EXPECT_EQ(count(html, "<polyline"), 2U);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("inf"), std::string::npos);
  series.points = {{0, kNan}};
  EXPECT_EQ(line_chart_html({"Loss", "", "step", Scale::plain, {series}}), "");
  EXPECT_EQ(line_chart_html({"Loss", "", "step", Scale::plain, {}}), "");
}

TEST(LineChart, OnePointIsAMark) {
  const std::string html =
      line_chart_html({"Loss", "", "step", Scale::plain, {{"train", 0, Stroke::faint, {{5, 0.25}}}}});
  EXPECT_EQ(count(html, "<circle"), 1U);
}

TEST(LineChart, TrainingPointsAreRingsAndLonePointsSayTheirValue) {
  const std::string html =
      line_chart_html({"Loss",
                       "",
                       "epoch",
                       Scale::plain,
                       {{"train", 0, Stroke::faint, {{1, 0.61}}}, {"valid", 0, Stroke::strong, {{1, 0.55}}}}});
  EXPECT_TRUE(has(html, "<circle class=\"c0 faint\""));
  EXPECT_TRUE(has(html, "<circle class=\"c0 strong\""));
  EXPECT_TRUE(has(html, ">0.6100</text>") && has(html, ">0.5500</text>")) << html;
  const std::string legend = legend_html({{"training", 0, Stroke::faint, {}}, {"validation", 0, Stroke::strong, {}}});
  EXPECT_EQ(count(legend, "<circle class=\"c0 faint\""), 1U);
  EXPECT_EQ(count(legend, "<circle class=\"c0 strong\""), 1U);
}

TEST(LineChart, AxesOfSharesStayWithinWhatIsPossible) {
  const auto ticks = [](std::vector<Point> points) {
    const std::string html =
        line_chart_html({"Accuracy", "", "epoch", Scale::percent, {{"valid", 0, Stroke::strong, std::move(points)}}});
    std::vector<double> values;
    for (size_t at = html.find("%</text>"); at != std::string::npos; at = html.find("%</text>", at + 1)) {
      values.push_back(std::stod(html.substr(html.rfind('>', at) + 1)));
    }
    return values;
  };
  for (const std::vector<Point>& points : std::vector<std::vector<Point>>{
           {{1, 1}, {2, 1}}, {{1, 0}, {2, 0}}, {{1, 0}, {2, 1}}, {{1, 0.999}, {2, 1}}, {{1, 1}}, {{1, 0}}}) {
    const std::vector<double> values = ticks(points);
    EXPECT_GE(values.size(), 3U);
    for (const double value : values) {
      EXPECT_GE(value, 0);
      EXPECT_LE(value, 100);
    }
  }
  EXPECT_GE(ticks({{1, -3}, {2, 7}}).size(), 2U) << "no share, but drawn";
}

TEST(LineChart, LongRunsAreThinnedWithoutLosingPeaks) {
  std::vector<Point> points;
  for (int i = 0; i < 200000; ++i) points.push_back({static_cast<double>(i), i == 123456 ? 9.0 : std::sin(i) / 100});
  const std::vector<Point> kept = thin_out(points, 600);
  EXPECT_LE(kept.size(), 600U);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 199999);
  double highest = 0, before = -1;
  for (const Point& point : kept) {
    highest = std::max(highest, point.y);
    EXPECT_GT(point.x, before);
    before = point.x;
  }
  EXPECT_EQ(highest, 9);
  EXPECT_LT(line_chart_html({"Loss", "", "step", Scale::plain, {{"train", 0, Stroke::faint, points}}}).size(), 40000U);
}

TEST(LineChart, EscapesNames) {
  for (const std::string& text : hostile_texts()) {
    const std::string html =
        line_chart_html({text, text, text, Scale::plain, {{text, 0, Stroke::strong, {{0, 1}, {1, 2}}}}});
    EXPECT_EQ(HtmlCheck(html + legend_html({{text, 3, Stroke::strong, {}}})).error(), "");
  }
}

TEST(Scatter, DrawsADotForEachPairAndTheErrors) {
  const std::vector<std::pair<double, double>> pairs = {{1, 1.5}, {2, 1.5}, {3, 3.25}, {kNan, 1}, {1, kInfinity}};
  const std::string html = scatter_html(pairs);
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(count(html, "<circle"), 3U);
  EXPECT_EQ(count(error_histogram_html(pairs), "<rect"), 25U);
  EXPECT_EQ(scatter_html({}), "");
  EXPECT_EQ(scatter_html({{kNan, kNan}}), "");
  EXPECT_EQ(error_histogram_html({{1, 1}, {2, 2}}), "") << "no errors, no histogram";
  EXPECT_EQ(HtmlCheck(scatter_html({{5, 5}})).error(), "");
}

Evaluation matrix_of(size_t classes) {
  Evaluation evaluation;
  for (size_t i = 0; i < classes; ++i) {
    evaluation.classes.push_back("class " + std::to_string(i));
    evaluation.confusion.emplace_back(classes, 0);
    evaluation.confusion[i][i] = 90;
    evaluation.confusion[i][(i + 1) % classes] += static_cast<int64_t>(i);
  }
  return evaluation;
}

TEST(Confusion, ShowsEveryCount) {
  const std::string html = confusion_html(matrix_of(3));
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(HtmlCheck(html).count("td"), 9);
  EXPECT_NE(html.find("class 2 &rarr; class 0: 2 (2.2%)"), std::string::npos) << html;
  EXPECT_EQ(confusion_html({}), "");
  EXPECT_EQ(confused_pairs_html({}), "");
}

TEST(Confusion, ManyClassesAreCondensed) {
  const std::string html = confusion_html(matrix_of(400));
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(HtmlCheck(html).count("td"), 900);
  EXPECT_GE(HtmlCheck(html).count("path"), 2);
  EXPECT_NE(html.find("30 classes with most errors out of 400"), std::string::npos);
  EXPECT_LT(html.size(), 200000U);
  EXPECT_NE(html.find(">class 399<"), std::string::npos);
}

TEST(Confusion, ListsTheLargestErrors) {
  const auto pairs = most_confused({{5, 3, 0}, {0, 0, 0}, {7, 1, 2}}, 2);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].truth, 2U);
  EXPECT_EQ(pairs[0].prediction, 0U);
  EXPECT_EQ(pairs[0].count, 7);
  EXPECT_DOUBLE_EQ(pairs[0].share, 0.7);
  EXPECT_EQ(pairs[1].count, 3);
}

TEST(Confusion, EscapesNames) {
  Evaluation evaluation = matrix_of(hostile_texts().size());
  evaluation.classes = hostile_texts();
  EXPECT_EQ(HtmlCheck(confusion_html(evaluation) + confused_pairs_html(evaluation)).error(), "");
}

}  // namespace
}  // namespace ramify::report
