#include "report/patch_grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

namespace ramify::report {
namespace {

constexpr int64_t kMaxSide = 256;

struct Place {
  int64_t row = 0;
  int64_t column = 0;
};

std::optional<Place> place_of(std::string_view label) {
  Place place;
  const char* end = label.data() + label.size();
  const auto row = std::from_chars(label.data(), end, place.row);
  if (row.ec != std::errc() || row.ptr == end || *row.ptr != ',') return std::nullopt;
  const char* second = row.ptr + 1;
  if (second != end && *second == ' ') ++second;
  const auto column = std::from_chars(second, end, place.column);
  if (column.ec != std::errc() || column.ptr != end) return std::nullopt;
  const auto is_inside = [](int64_t at) { return at >= 0 && at < kMaxSide; };
  if (!is_inside(place.row) || !is_inside(place.column)) return std::nullopt;
  return place;
}

std::vector<Place> places_of(std::span<const TreeNode> patches) {
  std::vector<Place> places;
  for (const TreeNode& patch : patches) {
    const std::optional<Place> place = place_of(patch.label);
    if (!place) break;
    places.push_back(*place);
  }
  if (places.size() == patches.size()) return places;
  places.clear();
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(patches.size()))));
  for (int64_t i = 0; i < std::ssize(patches); ++i) places.push_back({i / side, i % side});
  return places;
}

}  // namespace

std::string patch_grid_html(std::span<const TreeNode> patches, const Shade& shade) {
  const std::span<const TreeNode> drawn = patches.first(std::min<size_t>(patches.size(), kMaxSide * kMaxSide));
  const std::vector<Place> places = places_of(drawn);
  int64_t columns = 1;
  for (const Place& place : places) columns = std::max(columns, place.column + 1);
  std::string html = fmt::format("<span class=\"patches\" style=\"--columns:{}\">", columns);
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto [row, column] = places[i];
    html += fmt::format("<i class=\"{}\" style=\"grid-area:{}/{}\" title=\"row {}, column {}: {}\"></i>",
                        shade.css_class(drawn[i]), row + 1, column + 1, row, column, shade.note(drawn[i]));
  }
  return html + "</span>";
}

}  // namespace ramify::report
