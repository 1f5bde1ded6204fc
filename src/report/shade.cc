#include "report/shade.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"
#include "report/tree.h"

namespace ramify::report {
namespace {

int step(double times_even) {
  const double darkness = std::log2(1 + times_even) / std::log2(1 + kDarkestTimes);
  return static_cast<int>(std::lround(kShades * std::clamp(darkness, 0.0, 1.0)));
}

}  // namespace

double Shade::even_share(const TreeNode& node) const {
  return std::clamp(static_cast<double>(node.leaves) / leaves_, 0.0, 1.0);
}

double Shade::times_even(const TreeNode& node) const {
  const double even = even_share(node);
  return even > 0 ? node.mass / even : 0;
}

std::string Shade::css_class(const TreeNode& node) const {
  return node.mass < 0 ? "" : fmt::format("s{}", step(times_even(node)));
}

std::string Shade::note(const TreeNode& node) const {
  if (node.mass < 0) return "";
  return fmt::format("{:.2f}% of the attention, {:.2g} times an even share", 100 * node.mass, times_even(node));
}

std::string Shade::legend_html() {
  std::string html = "<span class=\"shades\">times an even share";
  for (const double times : {0.25, 1.0, 4.0, kDarkestTimes}) {
    html += fmt::format("<i class=\"s{}\">{:g}</i>", step(times), times);
  }
  return html + "</span>";
}

}  // namespace ramify::report
