// The range of an axis with round numbers marked on it.
#pragma once

#include <string>
#include <vector>

namespace ramify::report {

// How the numbers of an axis are written.
enum class Scale { plain, percent, count };

struct Axis {
  double low = 0;
  double high = 1;
  double step = 0.5;  // between ticks
  std::vector<double> ticks;

  double place(double value) const { return (value - low) / (high - low); }  // 0..1
};

// Beyond this a value is not drawn.
inline constexpr double kMaxDrawn = 1e30;

bool is_drawable(double value);

// What values can be at all: a share is not above 1.
struct Limits {
  double low = -2 * kMaxDrawn;
  double high = 2 * kMaxDrawn;
};

// From low to high, both drawable and within the limits, with about so many ticks at 1, 2 or 5 times a power of ten.
Axis make_axis(double low, double high, int ticks, const Limits& limits = {});

std::string tick_text(double value, const Axis& axis, Scale scale);

}  // namespace ramify::report
