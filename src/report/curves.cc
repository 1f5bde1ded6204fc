#include "report/curves.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/chart.h"
#include "report/evaluation_section.h"
#include "report/html.h"

namespace ramify::report {
namespace {

bool has_epochs(std::span<const Run> runs) {
  return std::all_of(runs.begin(), runs.end(), [](const Run& run) {
    return std::all_of(run.metrics.begin(), run.metrics.end(),
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

std::vector<Series> all_series(std::span<const Run> runs, const std::string& name, bool by_epoch) {
  std::vector<Series> all;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const char* split : {"train", "valid"}) {
      Series series = series_of(runs[i], split, name, by_epoch);
      series.colour = static_cast<int>(i);
      if (runs.size() > 1) series.name = runs[i].name + " " + split;
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
      const bool is_better = is_less_better(name) ? point.y < best.y : point.y > best.y;
      if (is_drawable(point.y) && (is_better || std::isnan(best.y))) {
        best = point;
        whose = series.name == "valid" ? "" : series.name.substr(0, series.name.rfind(' ')) + " ";
      }
    }
  }
  if (std::isnan(best.y)) return "";
  return fmt::format("best: {}{} at {} {:.4g}", whose, figure_text(name, best.y), x_name, best.x);
}

std::string chart_of(std::span<const Run> runs, const std::string& name, bool by_epoch) {
  Chart chart;
  chart.x_name = by_epoch ? "epoch" : "step";
  chart.title = figure_name(name);
  chart.y_scale = is_share(name) ? Scale::percent : Scale::plain;
  chart.series = all_series(runs, name, by_epoch);
  chart.note = best_note(chart.series, name, chart.x_name);
  return line_chart_html(chart);
}

std::string shared_legend(std::span<const Run> runs) {
  std::vector<Series> keys;
  if (runs.size() == 1) return legend_html({{"training", 0, Stroke::faint, {}}, {"validation", 0, Stroke::strong, {}}});
  for (size_t i = 0; i < runs.size(); ++i) keys.push_back({runs[i].name, static_cast<int>(i), Stroke::strong, {}});
  return legend_html(keys) + "<p class=\"hint\">Strong lines: validation. Faint lines: training.</p>\n";
}

std::string charts_html(std::span<const Run> runs, std::initializer_list<const char*> names) {
  const bool by_epoch = has_epochs(runs);
  std::string charts;
  for (const char* name : names) charts += chart_of(runs, name, by_epoch);
  return charts.empty() ? "" : "<div class=\"charts\">" + charts + "</div>\n";
}

}  // namespace

std::string curves_html(std::span<const Run> runs) {
  const std::string charts = charts_html(runs, {"loss", "accuracy", "macro_f1", "rmse", "mae", "r2"});
  return charts.empty() ? "" : shared_legend(runs) + charts;
}

std::string diagnostics_html(std::span<const Run> runs) {
  return charts_html(runs, {"rate", "leaves_per_second", "records_per_second"});
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
