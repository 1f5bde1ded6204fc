#include "report/item_labels.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "report/html.h"
#include "report/table.h"

namespace ramify::report {
namespace {

constexpr size_t kMaxTableItems = 500;

// "a.b\.c" is the keys a and b.c.
std::vector<std::string> keys_of(const std::string& path) {
  std::vector<std::string> keys(1);
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '.') {
      keys.emplace_back();
      continue;
    }
    if (path[i] == '\\' && i + 1 < path.size()) ++i;
    keys.back() += path[i];
  }
  return keys;
}

ItemLabel label_of(const Explanation& record, size_t item) {
  const bool is_known = record.truth && item < record.truth->size();
  return {record.prediction[item], is_known ? (*record.truth)[item] : ""};
}

}  // namespace

std::optional<ItemLabels> item_labels(const Explanation& record, const std::string& path) {
  ItemLabels labels;
  const TreeNode* node = &record.tree;
  labels.path.push_back(node);
  for (const std::string& key : keys_of(path)) {
    const auto found = std::ranges::find(node->children, key, &TreeNode::label);
    if (found == node->children.end()) return std::nullopt;
    node = &*found;
    labels.path.push_back(node);
  }
  const bool are_words = std::ranges::any_of(node->children, [](const TreeNode& each) { return each.kind == "token"; });
  if (are_words || node->children.empty() || node->children.size() != record.prediction.size()) return std::nullopt;
  for (size_t i = 0; i < node->children.size(); ++i) labels.of.emplace(&node->children[i], label_of(record, i));
  return labels;
}

std::string item_table_html(const Explanation& record) {
  Table table = {"", {{"Item", Align::number}, {"Predicted"}, {"Truth"}, {""}}, {}};
  for (size_t i = 0; i < record.prediction.size() && i < kMaxTableItems; ++i) {
    const ItemLabel label = label_of(record, i);
    Cell predicted(label.prediction);
    predicted.is_best = label.is_wrong();
    table.rows.push_back({Cell(std::to_string(i), static_cast<double>(i)), predicted, label.truth,
                          label.is_wrong() ? "\xE2\x9C\x97 wrong" : ""});
  }
  if (table.rows.empty()) return "";
  const size_t left = record.prediction.size() - table.rows.size();
  return table_html(table) + (left > 0 ? fmt::format("<p class=\"more\">and {} more</p>\n", left) : "");
}

std::string items_right_text(const Explanation& record) {
  int64_t known = 0, right = 0;
  for (size_t i = 0; i < record.prediction.size(); ++i) {
    const ItemLabel label = label_of(record, i);
    known += !label.truth.empty();
    right += !label.truth.empty() && !label.is_wrong();
  }
  if (known == 0) return with_commas(std::ssize(record.prediction)) + " items";
  return fmt::format("{} of {} items right", with_commas(right), with_commas(known));
}

}  // namespace ramify::report
