#include "report/evaluation_section.h"

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
                   {counted_name(evaluation), Align::number}};
  for (const ClassScore& score : evaluation.per_class) {
    table.rows.push_back({score.name, Cell(percent(score.precision), score.precision),
                          Cell(percent(score.recall), score.recall), share_cell(score.f1),
                          Cell(with_commas(score.support), static_cast<double>(score.support))});
  }
  return "<div><h3>Classes</h3>\n" + table_html(table) + "</div>\n";
}

}  // namespace

std::string evaluated_text(const Evaluation& evaluation) {
  const std::string records = with_commas(evaluation.records) + (evaluation.records == 1 ? " record" : " records");
  const std::string items = evaluation.items ? with_commas(*evaluation.items) + " items of " : "";
  return items + records + " of the " + evaluation.split + " split";
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
