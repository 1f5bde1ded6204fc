#include "report/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"

namespace ramify::report {
namespace {

double round_step(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough / power;
  return power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
}

}  // namespace

bool is_drawable(double value) {
  return std::isfinite(value) && std::abs(value) <= kMaxDrawn;
}

Axis make_axis(double low, double high, int ticks, const Limits& limits) {
  // a range that floating point cannot divide is widened to one it can
  const double least = std::max({std::abs(low), std::abs(high), 1e-6}) * 1e-6;
  if (high - low < least) {
    const double room = std::max(std::abs(low) * 0.1, 1e-3);
    low -= room;
    high += room;
  }
  low = std::max(low, limits.low);
  high = std::min(high, limits.high);
  Axis axis = {low, high, round_step((high - low) / ticks), {}};
  for (double tick = std::ceil(low / axis.step - 1e-9); tick * axis.step <= high + 1e-9 * axis.step; ++tick) {
    axis.ticks.push_back(tick == 0 ? 0 : tick * axis.step);
    if (axis.ticks.size() > 50) break;
  }
  return axis;
}

std::string tick_text(double value, const Axis& axis, Scale scale) {
  const double size = std::max(std::abs(axis.low), std::abs(axis.high));
  const double shown_step = scale == Scale::percent ? axis.step * 100 : axis.step;
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(shown_step) - 1e-9)), 0, 6);
  if (scale == Scale::percent) return fmt::format("{:.{}f}%", value * 100, digits);
  if (size >= 1e4) return with_unit(value);
  if (size < 1e-2) return value == 0 ? "0" : fmt::format("{:.0e}", value);
  return fmt::format("{:.{}f}", value, digits);
}

}  // namespace ramify::report
