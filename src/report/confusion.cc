#include "report/confusion.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

using Matrix = std::vector<std::vector<int64_t>>;

constexpr size_t kMaxWhole = 30;  // classes that a matrix with counts can show
constexpr size_t kPairs = 12;
constexpr int kPictureShades = 6;
constexpr size_t kMaxPictureCells = 20000;

int64_t row_total(const Matrix& matrix, size_t row) {
  return std::accumulate(matrix[row].begin(), matrix[row].end(), int64_t{0});
}

double share(const Matrix& matrix, size_t row, size_t column) {
  const int64_t total = row_total(matrix, row);
  return total > 0 ? static_cast<double>(matrix[row][column]) / static_cast<double>(total) : 0;
}

// Errors are few where a model is good: the root makes one in a hundred visible.
double darkness(double part) {
  return std::sqrt(part);
}

// The classes with most errors, in or out, in their own order.
std::vector<size_t> most_troubled(const Matrix& matrix, size_t count) {
  std::vector<int64_t> errors(matrix.size(), 0);
  for (size_t row = 0; row < matrix.size(); ++row) {
    for (size_t column = 0; column < matrix.size(); ++column) {
      if (row == column) continue;
      errors[row] += matrix[row][column];
      errors[column] += matrix[row][column];
    }
  }
  std::vector<size_t> order(matrix.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return errors[a] > errors[b]; });
  order.resize(std::min(count, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

// Which colour of text a shade needs. Light pages want dark text longer than dark ones do (page.css), and longer on the
// hue of errors.
const char* text_class(double dark, bool is_right) {
  if (dark > (is_right ? 0.78 : 0.9)) return " dark";
  return dark > 0.58 ? " half" : "";
}

std::string cell_html(const Evaluation& evaluation, size_t row, size_t column, int64_t total) {
  const int64_t count = evaluation.confusion[row][column];
  if (count == 0) return "<td></td>";
  const double part = static_cast<double>(count) / static_cast<double>(total);
  const bool is_right = row == column;
  const double dark = is_right ? part : darkness(part);
  return fmt::format("<td class=\"{}{}\" style=\"--a:{:.2f}\" title=\"{} &rarr; {}: {} ({})\">{}</td>",
                     is_right ? "right" : "wrong", text_class(dark, is_right), dark,
                     escape(evaluation.classes[row], 80), escape(evaluation.classes[column], 80), with_commas(count),
                     percent(part), count < 10000 ? std::to_string(count) : with_unit(static_cast<double>(count)));
}

std::string matrix_html(const Evaluation& evaluation, const std::vector<size_t>& shown) {
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"confusion\" style=\"--classes:{}\"><thead><tr>"
      "<th class=\"corner\">truth &darr; predicted &rarr;</th>",
      shown.size());
  for (const size_t column : shown) {
    const std::string& name = evaluation.classes[column];
    html += fmt::format("<th scope=\"col\" title=\"{}\"><span>{}</span></th>", escape(name, 200), isolated(name, 24));
  }
  html += "</tr></thead><tbody>";
  for (const size_t row : shown) {
    const std::string& name = evaluation.classes[row];
    const int64_t total = row_total(evaluation.confusion, row);
    html += fmt::format("<tr><th scope=\"row\" title=\"{}\">{}</th>", escape(name, 200), isolated(name, 24));
    for (const size_t column : shown) html += cell_html(evaluation, row, column, total);
    html += "</tr>";
  }
  return html + "</tbody></table></div>\n";
}

// Every cell of a large matrix as a dot of a picture, by shade: one path a shade keeps a thousand classes small.
std::string picture_html(const Matrix& matrix) {
  std::vector<std::string> paths(2 * kPictureShades);
  std::vector<ConfusedPair> cells = most_confused(matrix, kMaxPictureCells);
  for (size_t i = 0; i < matrix.size(); ++i) cells.push_back({i, i, matrix[i][i], share(matrix, i, i)});
  for (const ConfusedPair& cell : cells) {
    const double dark = cell.truth == cell.prediction ? cell.share : darkness(cell.share);
    const int step = std::clamp(static_cast<int>(std::ceil(dark * kPictureShades)), 1, kPictureShades) - 1;
    const int hue = cell.truth == cell.prediction ? 0 : kPictureShades;
    if (cell.count > 0) paths[hue + step] += fmt::format("M{} {}h1v1h-1z", cell.prediction, cell.truth);
  }
  std::string html = fmt::format(
      "<figure class=\"picture\"><svg role=\"img\" aria-label=\"All classes\" viewBox=\"0 0 {0} {0}\">", matrix.size());
  for (int i = 0; i < 2 * kPictureShades; ++i) {
    if (paths[i].empty()) continue;
    html += fmt::format("<path class=\"{}\" style=\"--a:{:.2f}\" d=\"{}\"/>", i < kPictureShades ? "right" : "wrong",
                        (i % kPictureShades + 1.0) / kPictureShades, paths[i]);
  }
  return html + fmt::format("</svg><figcaption>All {} classes: truth down, prediction across.</figcaption></figure>\n",
                            matrix.size());
}

}  // namespace

const char* counted_name(const Evaluation& evaluation) {
  return evaluation.items ? "Items" : "Records";
}

std::vector<ConfusedPair> most_confused(const Matrix& confusion, size_t count) {
  std::vector<ConfusedPair> pairs;
  for (size_t row = 0; row < confusion.size(); ++row) {
    const auto total = static_cast<double>(row_total(confusion, row));
    for (size_t column = 0; column < confusion.size(); ++column) {
      const int64_t records = confusion[row][column];
      if (row != column && records > 0) pairs.push_back({row, column, records, static_cast<double>(records) / total});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const ConfusedPair& a, const ConfusedPair& b) { return a.count > b.count; });
  pairs.resize(std::min(count, pairs.size()));
  return pairs;
}

std::string confusion_html(const Evaluation& evaluation) {
  const Matrix& matrix = evaluation.confusion;
  if (matrix.empty()) return "";
  const bool is_whole = matrix.size() <= kMaxWhole;
  std::string html =
      "<div class=\"matrix\"><h3>Confusion</h3><p class=\"hint\">Shade: share of the true class; of errors its square "
      "root.";
  if (!is_whole) html += fmt::format(" The {} classes with most errors out of {}.", kMaxWhole, matrix.size());
  html += "</p>\n" + matrix_html(evaluation, most_troubled(matrix, kMaxWhole)) + "</div>\n";
  return html + (is_whole ? "" : "<div class=\"whole\">" + picture_html(matrix) + "</div>\n");
}

std::string confused_pairs_html(const Evaluation& evaluation) {
  Table table;
  table.columns = {
      {"Truth"}, {"Taken for"}, {counted_name(evaluation), Align::number}, {"Of the class", Align::number}};
  for (const ConfusedPair& pair : most_confused(evaluation.confusion, kPairs)) {
    table.rows.push_back({evaluation.classes[pair.truth], evaluation.classes[pair.prediction],
                          Cell(with_commas(pair.count), static_cast<double>(pair.count)),
                          Cell(percent(pair.share), pair.share)});
  }
  return table.rows.empty() ? "" : "<div><h3>Confused most</h3>\n" + table_html(table) + "</div>\n";
}

}  // namespace ramify::report
