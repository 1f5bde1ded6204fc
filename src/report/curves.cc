#include "report/curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/chart.h"
#include "report/figures.h"
#include "report/html.h"

namespace ramify::report {
namespace {

bool has_epochs(ShownRuns runs) {
  return std::all_of(runs.begin(), runs.end(), [](const ShownRun& shown) {
    return std::all_of(shown.run->metrics.begin(), shown.run->metrics.end(),
                       [](const MetricLine& line) { return std::isfinite(line.epoch); });
  });
}

Series series_of(const Run& run, const std::string& split, const std::string& name, bool by_epoch) {
  Series series = {split, 0, split == "train" ? Stroke::faint : Stroke::strong, {}};
  for (const MetricLine& line : run.metrics) {
    const bool is_given =
        std::any_of(line.figures.begin(), line.figures.end(), [&](const Figure& each) { return each.first == name; });
    if (line.split != split || !is_given) continue;
    series.points.push_back({by_epoch ? line.epoch : line.step, figure(line.figures, name)});
  }
  // a run that was resumed may have lines of the same steps twice
  std::stable_sort(series.points.begin(), series.points.end(),
                   [](const Point& a, const Point& b) { return a.x < b.x; });
  return series;
}

std::vector<Series> all_series(ShownRuns runs, const std::string& name, bool by_epoch) {
  std::vector<Series> all;
  for (const ShownRun& shown : runs) {
    for (const char* split : {"train", "valid"}) {
      Series series = series_of(*shown.run, split, name, by_epoch);
      series.colour = shown.colour;
      if (runs.size() > 1) series.name = shown.run->name + " " + split;
      if (!series.points.empty()) all.push_back(std::move(series));
    }
  }
  return all;
}

// "best 87.9% at epoch 4", of the validation.
std::string best_note(const std::vector<Series>& all, const std::string& name, const std::string& x_name) {
  Point best = {0, kNan};
  std::string whose;
  for (const Series& series : all) {
    if (series.stroke != Stroke::strong) continue;
    for (const Point& point : series.points) {
      const bool is_better = better_of(name) == Better::less ? point.y < best.y : point.y > best.y;
      if (is_drawable(point.y) && (is_better || std::isnan(best.y))) {
        best = point;
        whose = series.name == "valid" ? "" : series.name.substr(0, series.name.rfind(' ')) + " ";
      }
    }
  }
  if (std::isnan(best.y)) return "";
  return fmt::format("best: {}{} at {} {:.4g}", whose, figure_text(name, best.y), x_name, best.x);
}

std::string chart_of(ShownRuns runs, const std::string& name, bool by_epoch) {
  Chart chart;
  chart.x_name = by_epoch ? "epoch" : "step";
  chart.title = figure_name(name);
  chart.y_scale = is_share(name) ? Scale::percent : Scale::plain;
  chart.series = all_series(runs, name, by_epoch);
  chart.note = best_note(chart.series, name, chart.x_name);
  return line_chart_html(chart);
}

std::string shared_legend(ShownRuns runs) {
  std::vector<Series> keys;
  if (runs.size() == 1) {
    const int colour = runs[0].colour;
    return legend_html({{"training", colour, Stroke::faint, {}}, {"validation", colour, Stroke::strong, {}}});
  }
  for (const ShownRun& shown : runs) keys.push_back({shown.run->name, shown.colour, Stroke::strong, {}});
  return legend_html(keys) +
         "<p class=\"hint\">Strong lines and filled points: validation. Faint lines and rings: training.</p>\n";
}

std::string charts_html(ShownRuns runs, FigureRole role) {
  const bool by_epoch = has_epochs(runs);
  std::string charts;
  for (const FigureKind& kind : figure_kinds()) {
    if (kind.role == role) charts += chart_of(runs, std::string(kind.name), by_epoch);
  }
  return charts.empty() ? "" : "<div class=\"charts\">" + charts + "</div>\n";
}

}  // namespace

std::string curves_html(ShownRuns runs) {
  const std::string charts = charts_html(runs, FigureRole::score);
  return charts.empty() ? "" : shared_legend(runs) + charts;
}

std::string diagnostics_html(ShownRuns runs) {
  return charts_html(runs, FigureRole::speed);
}

double training_seconds(const Run& run) {
  double seconds = kNan;
  for (const MetricLine& line : run.metrics) seconds = std::fmax(seconds, figure(line.figures, "seconds"));
  return seconds;
}

double leaves_per_second(const Run& run) {
  std::vector<double> rates;
  for (const MetricLine& line : run.metrics) {
    const double rate = figure(line.figures, "leaves_per_second");
    if (std::isfinite(rate)) rates.push_back(rate);
  }
  if (rates.empty()) return kNan;
  std::nth_element(rates.begin(), rates.begin() + std::ssize(rates) / 2, rates.end());
  return rates[rates.size() / 2];
}

}  // namespace ramify::report
