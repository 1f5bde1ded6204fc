#include "report/class_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

using ScoresOfClass = std::map<std::string, std::vector<double>>;  // F1 under every run; NaN: not given

ScoresOfClass scores_of_classes(ShownRuns runs) {
  ScoresOfClass scores;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Evaluation* evaluation = main_evaluation(*runs[i].run);
    if (!evaluation) continue;
    for (const ClassScore& score : evaluation->per_class) {
      scores.try_emplace(score.name, runs.size(), kNan).first->second[i] = score.f1;
    }
  }
  return scores;
}

// Dots that would cover each other are put below each other.
class Strip {
 public:
  Strip(ShownRuns runs, double low) : runs_(runs), low_(low) {}

  // values: of every run; NaN: none
  std::string svg(const std::vector<double>& values) const {
    const std::vector<size_t> lanes = lanes_of(values);
    const size_t last = *std::max_element(lanes.begin(), lanes.end());
    std::string html = fmt::format("<svg class=\"strip\" style=\"height:{}px\" aria-hidden=\"true\">",
                                   2 * kMiddle + kLaneHeight * last);
    html += fmt::format("<line x1=\"0\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>", kMiddle);
    for (size_t i = values.size(); i-- > 0;) {
      if (!std::isfinite(values[i])) continue;
      html += fmt::format("<circle class=\"{}\" cx=\"{:.1f}%\" cy=\"{}\" r=\"4\"><title>{} {}</title></circle>",
                          colour_class(runs_[i].colour), 100 * place(values[i]), kMiddle + kLaneHeight * lanes[i],
                          escape(runs_[i].run->name, 60), percent(values[i]));
    }
    return html + "</svg>";
  }

 private:
  static constexpr size_t kMiddle = 6, kLaneHeight = 7;  // pixels
  static constexpr double kApart = 0.045;                // a dot is so wide on the line

  double place(double value) const { return (value - low_) / (1 - low_); }

  std::vector<size_t> lanes_of(const std::vector<double>& values) const {
    std::vector<size_t> lanes(values.size(), 0);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto is_taken = [&](size_t lane) {
        for (size_t j = 0; j < i; ++j) {
          if (lanes[j] == lane && std::abs(place(values[i]) - place(values[j])) < kApart) return true;
        }
        return false;
      };
      while (is_taken(lanes[i])) ++lanes[i];
    }
    return lanes;
  }

  ShownRuns runs_;
  double low_;
};

std::vector<Cell> class_row(const std::string& name, const std::vector<double>& values, const Strip& strip,
                            bool is_ranked) {
  double low = kNan, high = kNan;
  for (const double value : values) {
    low = std::fmin(low, value);
    high = std::fmax(high, value);
  }
  const auto known = std::ranges::count_if(values, [](double value) { return std::isfinite(value); });
  std::vector<Cell> row = {name};
  for (const double value : values) {
    Cell& cell = row.emplace_back(std::isfinite(value) ? percent(value) : "", value);
    cell.is_best = is_ranked && value == high && low < high;
  }
  if (known > 1) {
    row.emplace_back(fmt::format("{:.1f}", 100 * (high - low)), high - low);
  } else {
    row.emplace_back("", kNan);  // one value has no range
  }
  row.emplace_back("").drawing = strip.svg(values);
  return row;
}

}  // namespace

std::string class_comparison_html(ShownRuns runs) {
  if (runs.size() < 2) return "";
  const ScoresOfClass scores = scores_of_classes(runs);
  if (scores.empty()) return "";
  double low = 0.9;
  for (const auto& [name, values] : scores) {
    for (const double value : values) low = std::fmin(low, value);
  }
  low = std::clamp(std::floor(low * 10) / 10, 0.0, 0.9);
  Table table = {"", {{"Class"}}, {}};
  for (const ShownRun& shown : runs) table.columns.push_back({shown.run->name, Align::number});
  table.columns.push_back({"Range", Align::number});
  table.columns.push_back({fmt::format("{:.0f} to 100%", 100 * low), Align::drawing});
  const Strip strip(runs, low);
  const bool is_ranked = have_same_records(runs);
  for (const auto& [name, values] : scores) table.rows.push_back(class_row(name, values, strip, is_ranked));
  const auto range = [&](const std::vector<Cell>& row) { return std::fmax(row[runs.size() + 1].order, -1); };
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [&](const std::vector<Cell>& a, const std::vector<Cell>& b) { return range(a) > range(b); });
  return "<p class=\"hint\">F1 of every class. Where the runs differ most comes first; range: in points.</p>\n" +
         table_html(table);
}

}  // namespace ramify::report
