#include "report/class_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "report/comparison.h"
#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

using ScoresOfClass = std::map<std::string, std::vector<double>>;  // F1 under every run; NaN: not given

ScoresOfClass scores_of_classes(std::span<const Run> runs) {
  ScoresOfClass scores;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Evaluation* evaluation = main_evaluation(runs[i]);
    if (!evaluation) continue;
    for (const ClassScore& score : evaluation->per_class) {
      scores.try_emplace(score.name, runs.size(), kNan).first->second[i] = score.f1;
    }
  }
  return scores;
}

// The scores as dots on a line from `low` to 1.
std::string strip_svg(const std::vector<double>& values, double low) {
  std::string html = "<svg class=\"strip\" aria-hidden=\"true\"><line x1=\"0\" x2=\"100%\" y1=\"50%\" y2=\"50%\"/>";
  for (size_t i = values.size(); i-- > 0;) {
    if (!std::isfinite(values[i])) continue;
    html += fmt::format("<circle class=\"{}\" cx=\"{:.1f}%\" cy=\"50%\" r=\"4\"/>", colour_class(static_cast<int>(i)),
                        100 * (values[i] - low) / (1 - low));
  }
  return html + "</svg>";
}

std::vector<Cell> class_row(const std::string& name, const std::vector<double>& values, double axis_low) {
  double low = kNan, high = kNan;
  for (const double value : values) {
    low = std::fmin(low, value);
    high = std::fmax(high, value);
  }
  std::vector<Cell> row = {name};
  for (const double value : values) {
    Cell& cell = row.emplace_back(percent(value), value);
    cell.is_best = value == high && low < high;
  }
  row.emplace_back(std::isfinite(high) ? fmt::format("{:.1f}", 100 * (high - low)) : "", high - low);
  row.emplace_back("").drawing = strip_svg(values, axis_low);
  return row;
}

}  // namespace

std::string class_comparison_html(std::span<const Run> runs) {
  const ScoresOfClass scores = scores_of_classes(runs);
  if (scores.empty()) return "";
  double low = 0.9;
  for (const auto& [name, values] : scores) {
    for (const double value : values) low = std::fmin(low, value);
  }
  low = std::clamp(std::floor(low * 10) / 10, 0.0, 0.9);
  Table table = {"", {{"Class"}}, {}};
  for (const Run& run : runs) table.columns.push_back({run.name, Align::number});
  table.columns.push_back({"Range", Align::number});
  table.columns.push_back({fmt::format("{:.0f} to 100%", 100 * low), Align::drawing});
  for (const auto& [name, values] : scores) table.rows.push_back(class_row(name, values, low));
  const auto range = [&](const std::vector<Cell>& row) { return std::fmax(row[runs.size() + 1].order, -1); };
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [&](const std::vector<Cell>& a, const std::vector<Cell>& b) { return range(a) > range(b); });
  return "<p class=\"hint\">F1 of every class. Where the runs differ most comes first.</p>\n" + table_html(table);
}

}  // namespace ramify::report
