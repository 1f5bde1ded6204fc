#include "report/evaluation_section.h"

#include <algorithm>
#include <cctype>

#include "report/confusion.h"
#include "report/html.h"
#include "report/scatter.h"
#include "report/table.h"

namespace ramify::report {
namespace {

Cell share_cell(double share) {
  Cell cell(percent(share), share);
  cell.bar = share >= 0 ? share : 0;
  return cell;
}

std::string classes_html(const Evaluation& evaluation) {
  if (evaluation.per_class.empty()) return "";
  Table table;
  table.columns = {{"Class"},
                   {"Precision", Align::number},
                   {"Recall", Align::number},
                   {"F1", Align::number},
                   {"Records", Align::number}};
  for (const ClassScore& score : evaluation.per_class) {
    table.rows.push_back({score.name, Cell(percent(score.precision), score.precision),
                          Cell(percent(score.recall), score.recall), share_cell(score.f1),
                          Cell(with_commas(score.support), static_cast<double>(score.support))});
  }
  return "<div><h3>Classes</h3>\n" + table_html(table) + "</div>\n";
}

}  // namespace

bool is_share(const std::string& name) {
  return name == "accuracy" || name.ends_with("f1") || name == "precision" || name == "recall";
}

bool is_less_better(const std::string& name) {
  return name == "loss" || name == "rmse" || name == "mae";
}

std::string figure_name(const std::string& name) {
  if (name == "rmse" || name == "mae") return name == "rmse" ? "RMSE" : "MAE";
  if (name == "r2") return "R\xC2\xB2";
  std::string shown = name;
  std::replace(shown.begin(), shown.end(), '_', ' ');
  if (shown.ends_with("f1")) shown[shown.size() - 2] = 'F';
  if (!shown.empty()) shown[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(shown[0])));
  return shown;
}

std::string figure_text(const std::string& name, double value) {
  return is_share(name) ? percent(value) : decimal(value);
}

std::string evaluation_html(const Evaluation& evaluation) {
  const std::string classes = confusion_html(evaluation) + classes_html(evaluation) + confused_pairs_html(evaluation);
  const std::string scatter = scatter_html(evaluation.pairs);
  std::string html = classes.empty() ? "" : "<div class=\"beside\">" + classes + "</div>\n";
  if (!scatter.empty())
    html += "<div class=\"charts\">" + scatter + error_histogram_html(evaluation.pairs) + "</div>\n";
  return html;
}

}  // namespace ramify::report
