#include "report/scatter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/axis.h"
#include "report/chart.h"
#include "report/html.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxDots = 2000;
constexpr size_t kBins = 25;

using Pairs = std::vector<std::pair<double, double>>;

Pairs drawable(const Pairs& pairs) {
  Pairs kept;
  for (const auto& [truth, prediction] : pairs) {
    if (is_drawable(truth) && is_drawable(prediction) && kept.size() < kMaxDots) kept.emplace_back(truth, prediction);
  }
  return kept;
}

std::string figure_begin(const char* kind, const char* title, const std::string& note) {
  return fmt::format(
      "<figure class=\"chart {}\"><figcaption><b>{}</b> <span>{}</span></figcaption><div class=\"plot\">"
      "<svg role=\"img\" aria-label=\"{}\">",
      kind, title, escape(note), title);
}

}  // namespace

std::string scatter_html(const Pairs& truth_and_prediction) {
  const Pairs pairs = drawable(truth_and_prediction);
  if (pairs.empty()) return "";
  double low = pairs[0].first, high = low;
  for (const auto& [truth, prediction] : pairs) {
    low = std::min({low, truth, prediction});
    high = std::max({high, truth, prediction});
  }
  const double room = 0.03 * (high - low);
  const Axis axis = make_axis(low - room, high + room, 5);
  std::string html = figure_begin("square", "Prediction against truth",
                                  fmt::format("{} records; the line is a perfect one", pairs.size()));
  html += axes_svg(axis, axis, Scale::plain, "truth") +
          "<line class=\"ideal\" x1=\"0\" y1=\"100%\" x2=\"100%\" y2=\"0\"/><g class=\"dots\">";
  for (const auto& [truth, prediction] : pairs) {
    html += fmt::format(
        "<circle cx=\"{:.2f}%\" cy=\"{:.2f}%\" r=\"3\"><title>truth {:.5g}, prediction {:.5g}</title></circle>",
        100 * axis.place(truth), 100 - 100 * axis.place(prediction), truth, prediction);
  }
  return html + "</g></svg></div></figure>\n";
}

std::string error_histogram_html(const Pairs& truth_and_prediction) {
  const Pairs pairs = drawable(truth_and_prediction);
  if (pairs.size() < 2) return "";
  double most = 0;
  for (const auto& [truth, prediction] : pairs) most = std::max(most, std::abs(prediction - truth));
  if (most == 0) return "";
  std::vector<int64_t> counts(kBins, 0);
  for (const auto& [truth, prediction] : pairs) {
    const double place = (prediction - truth + most) / (2 * most);
    ++counts[std::min(static_cast<size_t>(place * kBins), kBins - 1)];
  }
  const auto highest = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  const Axis x = make_axis(-most, most, 5);
  const Axis y = make_axis(0, highest * 1.05, 4);
  std::string html = figure_begin("square", "Errors", "prediction minus truth, records");
  html += axes_svg(x, y, Scale::count, "error") + "<g class=\"columns\">";
  for (size_t bin = 0; bin < kBins; ++bin) {
    const double left = -most + 2 * most * static_cast<double>(bin) / kBins;
    const double height = 100 * y.place(static_cast<double>(counts[bin]));
    html += fmt::format(
        "<rect x=\"{:.2f}%\" y=\"{:.2f}%\" width=\"{:.2f}%\" height=\"{:.2f}%\"><title>{:.4g} to {:.4g}: "
        "{}</title></rect>",
        100 * x.place(left) + 0.2, 100 - height, 100.0 / kBins - 0.4, height, left, left + 2 * most / kBins,
        counts[bin]);
  }
  return html + "</g></svg></div></figure>\n";
}

}  // namespace ramify::report
