#include "report/chart.h"

#include <fmt/core.h>

#include <algorithm>

#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxPoints = 600;
constexpr size_t kMaxMarks = 40;
constexpr double kLeastShares = 0.02;  // that an axis of shares spans

struct PlotFrame {
  Axis x, y;
};

// All of the points, but for a few that are far above the others, such as the first losses of a run.
std::pair<double, double> y_range(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double low = values.front();
  const double most = values[values.size() * 19 / 20];
  const double high = std::min(values.back(), low + 4 * std::max(most - low, 1e-30));
  return {low, most > low ? high : values.back()};
}

// Shares are drawn whole: what is possible for them is no wide range, and no axis goes beyond it.
Axis share_axis(double low, double high) {
  const bool is_possible = low >= 0 && high <= 1;
  const double room = std::max(0.04 * (high - low), (kLeastShares - (high - low)) / 2);
  if (!is_possible) return make_axis(low - room, high + room, 5);
  return make_axis(std::max(low - room, 0.0), std::min(high + room, 1.0), 5, {0, 1});
}

PlotFrame frame_of(const std::vector<Series>& series, Scale scale) {
  std::vector<double> x, y;
  for (const Series& each : series) {
    for (const Point& point : each.points) {
      if (!is_drawable(point.x) || !is_drawable(point.y)) continue;
      x.push_back(point.x);
      y.push_back(point.y);
    }
  }
  const auto [left, right] = std::minmax_element(x.begin(), x.end());
  const Axis x_axis = make_axis(std::min(*left, 0.0), *right, 5);
  if (scale == Scale::percent) {
    const auto [low, high] = std::minmax_element(y.begin(), y.end());
    return {x_axis, share_axis(*low, *high)};
  }
  const auto [low, high] = y_range(y);
  const double room = 0.04 * (high - low);
  return {x_axis, make_axis(low - room, high + room, 5)};
}

// One polyline for each run of points without a gap, in thousandths of the plot.
std::string lines_svg(const Series& series, const PlotFrame& frame) {
  std::string html, run;
  const auto flush = [&] {
    if (!run.empty()) html += fmt::format("<polyline points=\"{}\"/>", run);
    run.clear();
  };
  for (const Point& point : series.points) {
    if (!is_drawable(point.y) || !is_drawable(point.x)) {
      flush();
      continue;
    }
    run += fmt::format("{}{:.1f},{:.1f}", run.empty() ? "" : " ", 1000 * frame.x.place(point.x),
                       1000 - 1000 * frame.y.place(point.y));
  }
  flush();
  return html;
}

const char* stroke_class(Stroke stroke) {
  return stroke == Stroke::faint ? "faint" : "strong";
}

std::string marks_svg(const Series& series, const PlotFrame& frame) {
  std::string html;
  for (const Point& point : series.points) {
    if (!is_drawable(point.x) || !is_drawable(point.y) || point.y > frame.y.high) continue;
    html += fmt::format("<circle class=\"{} {}\" cx=\"{:.2f}%\" cy=\"{:.2f}%\" r=\"{}\"/>", colour_class(series.colour),
                        stroke_class(series.stroke), 100 * frame.x.place(point.x), 100 - 100 * frame.y.place(point.y),
                        series.points.size() == 1 ? "4" : "2.5");
  }
  return html;
}

bool is_single(const Series& series) {
  return series.points.size() == 1;
}

// The value beside a point that stands alone, where there is room: of validation above it, of training below.
std::string lone_value_svg(const Series& series, const PlotFrame& frame, Scale scale) {
  const Point& point = series.points[0];
  const double x = 100 * frame.x.place(point.x);
  const bool is_left = x < 50;
  return fmt::format(
      "<text class=\"value\" x=\"{:.2f}%\" y=\"{:.2f}%\" dx=\"{}\" dy=\"{}\" text-anchor=\"{}\">{}</text>", x,
      100 - 100 * frame.y.place(point.y), is_left ? 9 : -9, series.stroke == Stroke::strong ? -7 : 15,
      is_left ? "start" : "end", scale == Scale::percent ? percent(point.y) : decimal(point.y));
}

// The values for the script: "x,y x,y".
std::string values_text(const Series& series) {
  std::string text;
  for (const Point& point : series.points) {
    if (!is_drawable(point.x) || !is_drawable(point.y)) continue;
    text += fmt::format("{}{:.6g},{:.6g}", text.empty() ? "" : " ", point.x, point.y);
  }
  return text;
}

const char* scale_name(Scale scale) {
  return scale == Scale::percent ? "percent" : scale == Scale::count ? "count" : "plain";
}

std::string series_svg(const Series& series, const PlotFrame& frame) {
  return fmt::format("<g class=\"line {} {}\" data-name=\"{}\" data-values=\"{}\">{}</g>", colour_class(series.colour),
                     stroke_class(series.stroke), escape(series.name, 60), values_text(series),
                     lines_svg(series, frame));
}

bool has_points(const Series& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const Point& point) { return is_drawable(point.x) && is_drawable(point.y); });
}

}  // namespace

std::vector<Point> thin_out(const std::vector<Point>& points, size_t count) {
  if (points.size() <= count || count < 8) return points;
  std::vector<Point> kept = {points.front()};
  const size_t parts = count / 2 - 1;
  const size_t inner = points.size() - 2;
  for (size_t part = 0; part < parts; ++part) {
    const auto begin = points.begin() + 1 + static_cast<ptrdiff_t>(part * inner / parts);
    const auto end = points.begin() + 1 + static_cast<ptrdiff_t>((part + 1) * inner / parts);
    const auto key = [](const Point& point) { return is_drawable(point.y) ? point.y : 0; };
    auto [low, high] = std::minmax_element(begin, end, [&](const Point& a, const Point& b) { return key(a) < key(b); });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  kept.push_back(points.back());
  return kept;
}

std::string axes_svg(const Axis& x, const Axis& y, Scale y_scale, const std::string& x_name) {
  std::string html = "<g class=\"axes\">";
  for (const double tick : y.ticks) {
    const double place = 100 - 100 * y.place(tick);
    html += fmt::format(
        "<line x1=\"0\" x2=\"100%\" y1=\"{0:.2f}%\" y2=\"{0:.2f}%\"/>"
        "<text x=\"0\" y=\"{0:.2f}%\" dx=\"-8\" dy=\"4\" text-anchor=\"end\">{1}</text>",
        place, tick_text(tick, y, y_scale));
  }
  for (const double tick : x.ticks) {
    const double place = 100 * x.place(tick);
    html += fmt::format("<text x=\"{:.2f}%\" y=\"100%\" dy=\"18\" text-anchor=\"{}\">{}</text>", place,
                        place > 96 ? "end" : "middle", tick_text(tick, x, Scale::plain));
  }
  return html + fmt::format(
                    "<line class=\"base\" x1=\"0\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>"
                    "<text class=\"name\" x=\"100%\" y=\"100%\" dy=\"33\" text-anchor=\"end\">{}</text></g>",
                    escape(x_name, 60));
}

std::string legend_html(const std::vector<Series>& series) {
  std::string html = "<p class=\"legend\">";
  for (const Series& each : series) {
    html += fmt::format(
        "<span><svg class=\"key\" aria-hidden=\"true\"><line class=\"{} {}\" x1=\"0\" y1=\"50%\" "
        "x2=\"100%\" y2=\"50%\"/><circle class=\"{} {}\" cx=\"50%\" cy=\"50%\" r=\"3.5\"/></svg>{}</span>",
        colour_class(each.colour), stroke_class(each.stroke), colour_class(each.colour), stroke_class(each.stroke),
        isolated(each.name, 60));
  }
  return html + "</p>\n";
}

std::string line_chart_html(const Chart& chart) {
  Chart drawn = {chart.title, chart.note, chart.x_name, chart.y_scale, {}};
  for (const Series& series : chart.series) {
    if (!has_points(series)) continue;
    drawn.series.push_back({series.name, series.colour, series.stroke, thin_out(series.points, kMaxPoints)});
  }
  if (drawn.series.empty()) return "";
  const PlotFrame frame = frame_of(drawn.series, drawn.y_scale);
  std::string html = fmt::format(
      "<figure class=\"chart\"><figcaption><b>{}</b> <span>{}</span></figcaption><div class=\"plot\" "
      "data-x-low=\"{:.9g}\" data-x-high=\"{:.9g}\" data-x-name=\"{}\" data-scale=\"{}\">"
      "<svg role=\"img\" aria-label=\"{}\">",
      escape(drawn.title, 100), escape(drawn.note, 200), frame.x.low, frame.x.high, escape(drawn.x_name, 60),
      scale_name(drawn.y_scale), escape(drawn.title, 100));
  html += axes_svg(frame.x, frame.y, drawn.y_scale, drawn.x_name);
  // what lies on the edge of an axis of shares is drawn whole; elsewhere a line may leave the plot
  html += drawn.y_scale == Scale::percent ? "<svg class=\"lines whole\"" : "<svg class=\"lines\"";
  html += " viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">";
  for (const Series& series : drawn.series) html += series_svg(series, frame);
  html += "</svg>";
  for (const Series& series : drawn.series) {
    if (is_single(series) || (series.stroke == Stroke::strong && series.points.size() <= kMaxMarks)) {
      html += marks_svg(series, frame);
    }
    if (is_single(series) && drawn.series.size() <= 2) html += lone_value_svg(series, frame, drawn.y_scale);
  }
  return html + "</svg></div></figure>\n";
}

}  // namespace ramify::report
