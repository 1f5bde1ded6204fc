#include "signal/path.h"

#include <algorithm>
#include <stdexcept>

namespace ramify::signal {
namespace {

constexpr std::string_view kSpecial = ".[]\\";
constexpr std::string_view kEmptyKey = "\\_";  // JSON allows it

[[noreturn]] void fail(std::string_view path, const std::string& message) {
  throw std::invalid_argument("the path '" + std::string(path) + "' " + message +
                              "; expected keys joined by dots, items of arrays as [], such as sections[].title");
}

}  // namespace

std::vector<PathStep> parse_path(std::string_view path) {
  std::vector<PathStep> steps;
  for (size_t i = 0; i < path.size();) {
    if (path.substr(i).starts_with("[]")) {
      if (steps.empty() || !steps.back().is_item) steps.push_back({"", true});  // arrays in arrays share their items
      i += 2;
      continue;
    }
    if (i > 0) {
      if (path[i] != '.') fail(path, "has no dot before a key");
      ++i;
    }
    PathStep step;
    const size_t begin = i;
    for (; i < path.size() && path[i] != '.' && path[i] != '['; ++i) {
      if (path[i] == ']') fail(path, "has a lone bracket");
      if (path.substr(i).starts_with(kEmptyKey)) {
        ++i;
        continue;
      }
      if (path[i] == '\\' && ++i == path.size()) fail(path, "ends in a backslash");
      step.key += path[i];
    }
    if (i == begin) fail(path, "has an empty key");
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string write_path(const std::vector<PathStep>& steps) {
  std::string path;
  for (const PathStep& step : steps) {
    if (step.is_item) {
      path += "[]";
      continue;
    }
    if (!path.empty()) path += '.';
    if (step.key.empty()) path += kEmptyKey;
    for (const char letter : step.key) {
      if (kSpecial.find(letter) != std::string_view::npos) path += '\\';
      path += letter;
    }
  }
  return path;
}

FieldTree::FieldTree(const std::vector<std::string>& only, const std::vector<std::string>& left_out) {
  nodes_.emplace_back();
  if (!only.empty()) nodes_[0].use = Use::partly;
  for (const std::string& path : only) {
    const int32_t end = add(path);
    nodes_[end].use = Use::kept;
    for (int32_t node = nodes_[end].parent; node != kNone && nodes_[node].use != Use::kept;
         node = nodes_[node].parent) {
      nodes_[node].use = Use::partly;
    }
  }
  for (const std::string& path : left_out) {
    if (const int32_t node = add(path); node != 0) nodes_[node].use = Use::left_out;
  }
}

int32_t FieldTree::add_node(int32_t parent, Node node) {
  node.parent = parent;
  node.use = use_of_new(parent);
  nodes_.push_back(std::move(node));
  return size() - 1;
}

int32_t FieldTree::add_member(int32_t node, std::string_view key) {
  if (const int32_t found = find_member(node, key); found != kNone) return found;
  Node member;
  member.key = key;
  const int32_t added = add_node(node, std::move(member));
  nodes_[node].members.emplace(key, added);
  return added;
}

int32_t FieldTree::add_item(int32_t node) {
  if (const int32_t found = find_item(node); found != kNone) return found;
  Node item;
  item.is_item = true;
  const int32_t added = add_node(node, std::move(item));
  nodes_[node].item = added;
  return added;
}

int32_t FieldTree::add(std::string_view path) {
  int32_t node = 0;
  for (const PathStep& step : parse_path(path)) {
    node = step.is_item ? add_item(node) : add_member(node, step.key);
  }
  return node;
}

int32_t FieldTree::find(std::string_view path) const {
  int32_t node = 0;
  for (const PathStep& step : parse_path(path)) {
    node = step.is_item ? find_item(node) : find_member(node, step.key);
    if (node == kNone) break;
  }
  return node;
}

std::string FieldTree::path(int32_t node) const {
  std::vector<PathStep> steps;
  for (; node > 0; node = nodes_[node].parent) steps.push_back({nodes_[node].key, nodes_[node].is_item});
  std::reverse(steps.begin(), steps.end());
  return write_path(steps);
}

}  // namespace ramify::signal
