// Forests of regular windows, over sequences and over grids, and the text form of their sizes.
#include <algorithm>
#include <charconv>
#include <functional>
#include <stdexcept>
#include <string>

#include "hierarchy/forest_writer.h"
#include "ramify/builders.h"

namespace ramify {
namespace {

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw std::invalid_argument(where + ": " + message);
}

int64_t ceil_divide(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

// Splits `2,4,16*` at its commas, calls `add` on each part, and returns whether a star closed the last one.
bool parse_sizes(std::string_view text, const std::function<void(std::string_view)>& add) {
  const bool repeat_last = !text.empty() && text.back() == '*';
  if (repeat_last) text.remove_suffix(1);
  if (text.empty()) return repeat_last;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    add(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return repeat_last;
}

// Blanks around a number are allowed; anything else makes the whole text invalid.
int64_t parse_size(std::string_view part, std::string_view whole, const char* expected) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!part.empty() && is_blank(part.front())) part.remove_prefix(1);
  while (!part.empty() && is_blank(part.back())) part.remove_suffix(1);
  int64_t size = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
  if (error != std::errc() || end != part.data() + part.size()) {
    fail("hierarchy", "'" + std::string(whole) + "' is not a list of sizes; expected " + expected);
  }
  return size;
}

// The level sizes of one tree from the leaves up to the single root, under any notion of "one level up".
template <class Size, class Coarser, class IsOne>
std::vector<Size> level_sizes(Size leaves, int64_t num_sizes, bool repeat_last, Coarser coarser, IsOne is_one) {
  std::vector<Size> levels = {leaves};
  for (int64_t l = 0; !is_one(levels.back()) && (l < num_sizes || repeat_last); ++l) {
    levels.push_back(coarser(levels.back(), std::min(l, num_sizes - 1)));
  }
  return levels;
}

void check_sizes(const std::string& where, const std::vector<int64_t>& sizes, bool repeat_last) {
  for (const int64_t size : sizes) {
    if (size < 1) fail(where, "branching holds " + std::to_string(size) + "; every size must be at least 1");
  }
  if (repeat_last && sizes.empty()) fail(where, "branching '*' has no size to repeat");
}

}  // namespace

Branching Branching::parse(std::string_view text) {
  constexpr const char* kExpected = "sizes from the bottom up, such as 2,4,8,16 or 16*";
  Branching branching;
  branching.repeat_last =
      parse_sizes(text, [&](std::string_view part) { branching.sizes.push_back(parse_size(part, text, kExpected)); });
  check_sizes("hierarchy", branching.sizes, branching.repeat_last);
  return branching;
}

GridBranching GridBranching::parse(std::string_view text) {
  constexpr const char* kExpected = "sizes of windows from the bottom up, such as 2x2,4x4 or 4x4*";
  GridBranching branching;
  branching.repeat_last = parse_sizes(text, [&](std::string_view part) {
    const size_t cross = part.find('x');
    const int64_t rows = parse_size(part.substr(0, cross), text, kExpected);
    const int64_t columns =
        cross == std::string_view::npos ? rows : parse_size(part.substr(cross + 1), text, kExpected);
    branching.sizes.push_back({rows, columns});
  });
  for (const GridShape& size : branching.sizes) check_sizes("hierarchy", {size.rows, size.columns}, false);
  if (branching.repeat_last && branching.sizes.empty()) check_sizes("hierarchy", {}, true);
  return branching;
}

Forest windows(std::span<const int64_t> lengths, const Branching& branching) {
  const auto& sizes = branching.sizes;
  check_sizes("windows", sizes, branching.repeat_last);
  if (branching.repeat_last && sizes.back() < 2) fail("windows", "branching '1*' never reaches one family");

  int64_t num_leaves = 0, num_nodes = 0, num_levels = 0;
  std::vector<int64_t> tree_begin = {0};
  std::vector<std::vector<int64_t>> trees;  // sizes of the levels, from the root down; none for an empty tree
  for (size_t t = 0; t < lengths.size(); ++t) {
    if (lengths[t] < 0) fail("windows", "length " + std::to_string(t) + " is " + std::to_string(lengths[t]));
    if (lengths[t] > kMaxLeaves - num_leaves) fail("windows", "more than 2147483648 leaves in all");
    num_leaves += lengths[t];
    tree_begin.push_back(tree_begin.back() + (lengths[t] > 0));
    if (lengths[t] == 0) continue;
    auto levels = level_sizes(
        lengths[t], static_cast<int64_t>(sizes.size()), branching.repeat_last,
        [&](int64_t n, int64_t l) { return ceil_divide(n, sizes[l]); }, [](int64_t n) { return n == 1; });
    if (levels.back() > 1) levels.push_back(1);
    for (const int64_t n : levels) num_nodes += n;
    num_levels = std::max(num_levels, static_cast<int64_t>(levels.size()));
    trees.push_back(std::move(levels));
  }

  ForestWriter writer(std::move(tree_begin), num_nodes);
  for (int64_t depth = 0; depth < num_levels; ++depth) {
    for (const auto& levels : trees) {
      const int64_t height = static_cast<int64_t>(levels.size()) - 1 - depth;
      if (height < 0) continue;
      int64_t below = height == 0 ? 0 : levels[height - 1];
      // The root over what remained takes all of it; its size has no entry in `sizes`.
      const bool rest = !branching.repeat_last && height > static_cast<int64_t>(sizes.size());
      const int64_t group = height == 0 ? 0 : rest ? below : sizes[std::min<int64_t>(height, sizes.size()) - 1];
      for (int64_t n = 0; n < levels[height]; ++n) {
        writer.add_node(std::min(group, below));
        below -= std::min(group, below);
      }
    }
  }
  return std::move(writer).finish();
}

namespace {

struct Cell {
  int64_t row, column;
};

// One grid. The cells of each level are listed in the order of their parents' windows, down to the leaves.
GridForest one_grid(const GridShape& grid, const GridBranching& branching) {
  GridForest result;
  if (grid.rows == 0 || grid.columns == 0) {
    result.forest = ForestWriter({0, 0}, 0).finish();
    return result;
  }
  const auto is_one = [](const GridShape& s) { return s.rows == 1 && s.columns == 1; };
  std::vector<GridShape> windows_up = branching.sizes;
  auto levels = level_sizes(
      grid, static_cast<int64_t>(branching.sizes.size()), branching.repeat_last,
      [&](const GridShape& s, int64_t l) {
        const GridShape& window = branching.sizes[l];
        return GridShape{ceil_divide(s.rows, window.rows), ceil_divide(s.columns, window.columns)};
      },
      is_one);
  windows_up.resize(std::max(windows_up.size(), levels.size()),
                    branching.sizes.empty() ? GridShape{1, 1} : branching.sizes.back());
  if (!is_one(levels.back())) {
    windows_up[levels.size() - 1] = levels.back();
    levels.push_back({1, 1});
  }

  ForestWriter writer({0, 1}, grid.rows * grid.columns * 2);
  std::vector<Cell> cells = {{0, 0}};
  for (int64_t height = static_cast<int64_t>(levels.size()) - 1; height > 0; --height) {
    const GridShape& window = windows_up[height - 1];
    const GridShape& below = levels[height - 1];
    std::vector<Cell> children;
    children.reserve(below.rows * below.columns);
    for (const Cell& cell : cells) {
      const size_t before = children.size();
      const int64_t row_end = std::min((cell.row + 1) * window.rows, below.rows);
      const int64_t column_end = std::min((cell.column + 1) * window.columns, below.columns);
      for (int64_t r = cell.row * window.rows; r < row_end; ++r) {
        for (int64_t c = cell.column * window.columns; c < column_end; ++c) children.push_back({r, c});
      }
      writer.add_node(static_cast<int64_t>(children.size() - before));
    }
    cells = std::move(children);
  }
  for (const Cell& cell : cells) {
    writer.add_node(0);
    result.raster_index.push_back(cell.row * grid.columns + cell.column);
  }
  result.forest = std::move(writer).finish();
  return result;
}

}  // namespace

GridForest grid_windows(std::span<const GridShape> grids, const GridBranching& branching) {
  for (const GridShape& size : branching.sizes) check_sizes("grid_windows", {size.rows, size.columns}, false);
  if (branching.repeat_last) {
    if (branching.sizes.empty()) check_sizes("grid_windows", {}, true);
    if (branching.sizes.back().rows < 2 || branching.sizes.back().columns < 2) {
      fail("grid_windows", "a window that repeats needs at least 2 rows and 2 columns to reach one family");
    }
  }
  int64_t num_leaves = 0;
  for (size_t g = 0; g < grids.size(); ++g) {
    const auto [rows, columns] = grids[g];
    if (rows < 0 || columns < 0) {
      fail("grid_windows", "grid " + std::to_string(g) + " is " + std::to_string(rows) + "x" + std::to_string(columns));
    }
    if (columns > 0 && rows > (kMaxLeaves - num_leaves) / columns) {
      fail("grid_windows", "more than 2147483648 leaves in all");
    }
    num_leaves += rows * columns;
  }

  GridForest result;
  std::vector<Forest> forests;
  result.raster_index.reserve(num_leaves);
  for (const GridShape& grid : grids) {
    GridForest one = one_grid(grid, branching);
    const auto offset = static_cast<int64_t>(result.raster_index.size());
    for (const int64_t index : one.raster_index) result.raster_index.push_back(offset + index);
    forests.push_back(std::move(one.forest));
  }
  result.forest = concatenate(forests);
  return result;
}

}  // namespace ramify
