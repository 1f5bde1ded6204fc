// explanations.json: records with their trees and the attention that each node received.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "report/json_file.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

using nlohmann::json;

std::string shown_or_empty(const std::optional<JsonField>& field) {
  return field ? field->shown() : "";
}

// A node without its children.
TreeNode read_node(const JsonField& field) {
  TreeNode node;
  node.kind = field.at("kind").text();
  node.label = shown_or_empty(field.find("label"));
  node.text = shown_or_empty(field.find("text"));
  if (const auto mass = field.find("mass")) {
    node.mass = mass->number();
    if (!(node.mass >= 0 && node.mass < 1.001)) {
      throw Error(fmt::format("{}: {}; expected a share from 0 to 1", mass->place(), node.mass));
    }
  }
  if (const auto leaves = field.find("leaves")) node.leaves = leaves->count();
  return node;
}

// Depth first with a stack of our own. A message names the record and the kind of field, not the way down to it, which
// may be two thousand steps long.
TreeNode read_tree(const JsonField& field) {
  struct Frame {
    const json* children;
    TreeNode* node;
    size_t next = 0;
  };
  const std::string inside = field.place() + " (a node inside)";
  const auto children_of = [](const JsonField& of) -> const json* {
    const auto children = of.find("children");
    if (children && !children->value().is_array()) children->fail("a list");
    return children ? &children->value() : nullptr;
  };
  TreeNode root = read_node(field);
  std::vector<Frame> stack;
  const auto push = [&](const JsonField& of, TreeNode* node) {
    const json* children = children_of(of);
    if (!children) return;
    node->children.reserve(children->size());  // pointers to children stay
    stack.push_back({children, node});
  };
  push(field, &root);
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next == frame.children->size()) {
      stack.pop_back();
      continue;
    }
    if (std::ssize(stack) > kMaxTreeDepth) {
      throw Error(fmt::format("{}: deeper than {} levels", field.place(), kMaxTreeDepth));
    }
    const JsonField child((*frame.children)[frame.next++], inside);
    push(child, &frame.node->children.emplace_back(read_node(child)));
  }
  return root;
}

// One answer, or a list of them; what is not known among them is empty.
std::vector<std::string> read_answers(const JsonField& field) {
  if (!field.value().is_array()) return {field.shown()};
  std::vector<std::string> answers;
  for (const JsonField& one : field.items()) answers.push_back(one.value().is_null() ? "" : one.shown());
  return answers;
}

Explanation read_explanation(const JsonField& field) {
  Explanation explanation;
  explanation.line = field.at("line").count();
  if (const auto truth = field.find("truth")) explanation.truth = read_answers(*truth);
  if (const auto prediction = field.find("prediction")) explanation.prediction = read_answers(*prediction);
  if (const auto probabilities = field.find("probabilities")) {
    for (const auto& [name, share] : probabilities->members()) {
      explanation.probabilities.emplace_back(name, share.number());
    }
  }
  std::stable_sort(explanation.probabilities.begin(), explanation.probabilities.end(),
                   [](const auto& a, const auto& b) { return std::fmax(a.second, -1) > std::fmax(b.second, -1); });
  explanation.tree = read_tree(field.at("tree"));
  return explanation;
}

}  // namespace

std::vector<Explanation> read_explanations(std::string_view text, const std::string& name) {
  const json document = parse_json(text, name);
  std::vector<Explanation> explanations;
  for (const JsonField& record : JsonField(document, name + ": ").at("records").items()) {
    explanations.push_back(read_explanation(record));
  }
  return explanations;
}

}  // namespace ramify::report
