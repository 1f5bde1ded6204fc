#include "report/explanation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/html.h"
#include "report/tree.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxRecords = 50;

std::string probabilities_html(const Explanation& record) {
  if (record.probabilities.empty()) return "";
  std::string html = "<ul class=\"probabilities\">";
  for (const auto& [name, share] : record.probabilities) {
    const double width = std::isfinite(share) ? 100 * std::clamp(share, 0.0, 1.0) : 0;
    const bool is_true =
        std::find(record.true_classes.begin(), record.true_classes.end(), name) != record.true_classes.end();
    html += fmt::format(
        "<li{}><span class=\"name\">{}</span><span class=\"track\"><i style=\"width:{:.1f}%\"></i></span>"
        "<span class=\"percent\">{}</span></li>",
        is_true ? " class=\"truth\"" : "", isolated(name, 80), width, percent(share));
  }
  return html + "</ul>";
}

std::string verdict_html(const Explanation& record) {
  const std::string prediction = "<b>" + isolated(record.prediction, 120) + "</b>";
  if (record.truth.empty()) return "predicted " + prediction;
  if (record.truth == record.prediction) return "<span class=\"ok\">&#10003;</span> " + prediction;
  const bool is_class = !record.probabilities.empty();
  return fmt::format("{}{} <span class=\"soft\">truth</span> {}",
                     is_class ? "<span class=\"no\">&#10007;</span> " : "<span class=\"soft\">predicted</span> ",
                     prediction, isolated(record.truth, 120));
}

}  // namespace

std::string explanations_html(const std::vector<Explanation>& explanations) {
  std::string html;
  for (size_t i = 0; i < explanations.size() && i < kMaxRecords; ++i) {
    const Explanation& record = explanations[i];
    html += fmt::format(
        "<details class=\"record\"{}><summary><span class=\"soft\">line {}</span> {}</summary>\n{}{}</details>\n",
        i == 0 ? " open" : "", with_commas(record.line), verdict_html(record), probabilities_html(record),
        tree_html(record.tree));
  }
  if (explanations.size() > kMaxRecords) {
    html += fmt::format("<p class=\"more\">and {} more records</p>\n", explanations.size() - kMaxRecords);
  }
  return html;
}

}  // namespace ramify::report
