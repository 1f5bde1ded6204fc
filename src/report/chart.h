// Line charts as inline SVG. They take the width they are given while their text keeps its size, and need no script;
// with the page's script, values show under the pointer.
#pragma once

#include <string>
#include <vector>

#include "report/axis.h"

namespace ramify::report {

struct Point {
  double x = 0;
  double y = 0;  // not drawable: the line has a gap
};

// Strong lines have filled points, faint ones rings, so that a single point is told apart, too.
enum class Stroke { strong, faint };

struct Series {
  std::string name;
  int colour = 0;
  Stroke stroke = Stroke::strong;
  std::vector<Point> points;  // x ascending
};

struct Chart {
  std::string title;
  std::string note;    // beside the title
  std::string x_name;  // "epoch"
  Scale y_scale = Scale::plain;
  std::vector<Series> series;
};

// Empty where nothing can be drawn.
std::string line_chart_html(const Chart& chart);

std::string legend_html(const std::vector<Series>& series);

// At most about `count` points of a line: its ends, and the lowest and highest of equal parts, so that no peak is lost.
std::vector<Point> thin_out(const std::vector<Point>& points, size_t count);

// Grid, ticks and axis names of a plot, in percent of its width and height; y grows upwards.
std::string axes_svg(const Axis& x, const Axis& y, Scale y_scale, const std::string& x_name);

}  // namespace ramify::report
