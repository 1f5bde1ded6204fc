#include "report/table.h"

#include <fmt/core.h>

#include <cmath>
#include <string_view>

#include "report/html.h"

namespace ramify::report {
namespace {

constexpr size_t kLongWord = 24;

std::string head_html(const Column& column, bool is_sortable) {
  const std::string name = escape(column.name, 200);
  if (column.align == Align::drawing) return "<th scope=\"col\" class=\"drawing\">" + name + "</th>";
  const char* align = column.align == Align::number ? " class=\"n\"" : "";
  if (!is_sortable || name.empty()) return fmt::format("<th scope=\"col\"{}>{}</th>", align, name);
  return fmt::format("<th scope=\"col\"{}><button type=\"button\">{}</button></th>", align, name);
}

// Long names are made of parts: "comp.sys.mac.hardware", "model.layers[0].heads". Lines may break after each.
bool ends_part(char letter) {
  return letter == '.' || letter == '_' || letter == '/';
}

std::string breakable(std::string_view html) {
  std::string result;
  for (const char letter : html) {
    result += letter;
    if (ends_part(letter)) result += "<wbr>";
  }
  return result;
}

// Words too long for a column may break anywhere; the others keep the column as wide as they are.
bool has_long_word(std::string_view text) {
  size_t length = 0;
  for (const char letter : text) {
    length = letter == ' ' || letter == '-' || ends_part(letter) ? 0 : length + 1;
    if (length > kLongWord) return true;
  }
  return false;
}

std::string cell_html(const Cell& cell, const Column& column) {
  if (column.align == Align::drawing) return "<td class=\"drawing\">" + cell.drawing + "</td>";
  const std::string text = escape(cell.text, 300);
  std::string content = "<bdi>" + (column.align == Align::text ? breakable(text) : text) + "</bdi>";
  if (cell.is_best) content = "<b>" + content + "</b>";
  if (cell.colour >= 0) content = fmt::format("<i class=\"swatch {}\"></i>{}", colour_class(cell.colour), content);
  if (cell.bar >= 0) {
    content += fmt::format("<span class=\"bar\"><i style=\"width:{:.1f}%\"></i></span>", 100 * std::fmin(cell.bar, 1));
  }
  if (column.align == Align::text) {
    return (has_long_word(cell.text) ? "<td class=\"long\">" : "<td>") + content + "</td>";
  }
  // what is missing or not a number sorts below everything
  const std::string order = std::isfinite(cell.order) ? fmt::format("{:.9g}", cell.order) : "-1e308";
  return fmt::format("<td class=\"n\" data-order=\"{}\">{}</td>", order, content);
}

}  // namespace

std::string colour_class(int number) {
  return fmt::format("c{}", number % 8);
}

std::string table_html(const Table& table) {
  std::string html = "<div class=\"scroll\"><table class=\"data\">";
  if (!table.title.empty()) html += "<caption>" + escape(table.title, 300) + "</caption>";
  html += "<thead><tr>";
  for (const Column& column : table.columns) html += head_html(column, table.rows.size() > 1);
  html += "</tr></thead><tbody>";
  for (const std::vector<Cell>& row : table.rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size() && i < table.columns.size(); ++i) html += cell_html(row[i], table.columns[i]);
    html += "</tr>";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace ramify::report
