#include "report/explanation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "report/html.h"
#include "report/item_labels.h"
#include "report/tree.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxRecords = 50;
constexpr size_t kMaxAnswerBytes = 120;
constexpr std::string_view kItemTask = "nodes";  // one label an item

std::string probabilities_html(const Explanation& record) {
  if (record.probabilities.empty()) return "";
  std::string html = "<ul class=\"probabilities\">";
  for (const auto& [name, share] : record.probabilities) {
    const double width = std::isfinite(share) ? 100 * std::clamp(share, 0.0, 1.0) : 0;
    const bool is_true = record.truth && std::ranges::find(*record.truth, name) != record.truth->end();
    html += fmt::format(
        "<li{}><span class=\"name\">{}</span><span class=\"track\"><i style=\"width:{:.1f}%\"></i></span>"
        "<span class=\"percent\">{}</span></li>",
        is_true ? " class=\"truth\"" : "", isolated(name, 80), width, percent(share));
  }
  return html + "</ul>";
}

std::string answer_html(const std::vector<std::string>& answers) {
  if (answers.empty()) return "<em>no label</em>";
  std::string list;
  for (const std::string& answer : answers) {
    if (list.size() > kMaxAnswerBytes) return isolated(list + ", \xE2\x80\xA6");
    list += (list.empty() ? "" : ", ") + answer;
  }
  return isolated(list, 2 * kMaxAnswerBytes);
}

bool is_right(const Explanation& record) {
  std::vector<std::string> truth = *record.truth, prediction = record.prediction;
  std::ranges::sort(truth);
  std::ranges::sort(prediction);
  return truth == prediction;
}

std::string verdict_html(const Explanation& record, const RunConfig& config) {
  if (config.task == kItemTask) return escape(items_right_text(record));
  const std::string prediction = "<b>" + answer_html(record.prediction) + "</b>";
  if (!record.truth) return "predicted " + prediction;
  if (is_right(record)) return "<span class=\"ok\">&#10003;</span> " + prediction;
  const bool is_number = config.task == "regression";
  return fmt::format("{}{} <span class=\"soft\">truth</span> {}",
                     is_number ? "<span class=\"soft\">predicted</span> " : "<span class=\"no\">&#10007;</span> ",
                     prediction, answer_html(*record.truth));
}

std::string record_html(const Explanation& record, const RunConfig& config) {
  if (config.task != kItemTask) return probabilities_html(record) + tree_html(record.tree);
  const std::optional<ItemLabels> labels = item_labels(record, config.target_of);
  return labels ? tree_html(record.tree, *labels) : item_table_html(record) + tree_html(record.tree);
}

}  // namespace

std::string explanations_html(const Run& run) {
  const std::vector<Explanation>& explanations = run.explanations;
  std::string html;
  for (size_t i = 0; i < explanations.size() && i < kMaxRecords; ++i) {
    const Explanation& record = explanations[i];
    html += fmt::format(
        "<details class=\"record\"{}><summary><span class=\"soft\">line {}</span> {}</summary>\n{}</details>\n",
        i == 0 ? " open" : "", with_commas(record.line), verdict_html(record, run.config),
        record_html(record, run.config));
  }
  if (explanations.size() > kMaxRecords) {
    html += fmt::format("<p class=\"more\">and {} more records</p>\n", explanations.size() - kMaxRecords);
  }
  return html;
}

}  // namespace ramify::report
