#include "signal/special_values.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "signal/similar_names.h"

namespace ramify::signal {
namespace {

constexpr std::pair<std::string_view, Special> kKeys[] = {
    {"$image", Special::image}, {"$set", Special::set}, {"$vector", Special::vector}, {"$graph", Special::graph}};

// A misspelt one. Others that begin with a dollar ({"$ref": ...}, {"$date": ...}) are ordinary keys.
std::string misspelling(std::string_view key) {
  static const std::vector<std::string> known = [] {
    std::vector<std::string> names;
    for (const auto& [name, special] : kKeys) names.emplace_back(name);
    return names;
  }();
  const std::string meant = key.starts_with('$') ? similar_name(key, known) : "";
  if (meant.empty()) return "";
  return fmt::format("has the key {}; did you mean {}? Known are $image, $set, $vector and $graph", key, meant);
}

Special special_named(std::string_view key) {
  if (!key.starts_with('$')) return Special::none;
  for (const auto& [name, special] : kKeys) {
    if (key == name) return special;
  }
  return Special::none;
}

void find_graph_parts(const Document& document, SpecialValue& value) {
  const size_t graph = value.inner;
  value.inner = document.member(graph, "nodes");
  value.edges = document.member(graph, "edges");
  const auto is_array = [&](size_t part) { return part != 0 && document[part].type == Value::Type::array; };
  if (is_array(value.inner) && is_array(value.edges) && document[graph].items == 2) return;
  value.error = R"(is a $graph without nodes and edges; expected {"nodes": [...], "edges": [[0, 1], ...]})";
}

}  // namespace

SpecialValue special_value(const Document& document, size_t object) {
  SpecialValue value;
  for (size_t i = object + 1; i < document[object].end && value.special == Special::none; i = document[i].end) {
    value.special = special_named(document.key(document[i]));
    value.inner = i;
  }
  if (value.special == Special::none) {
    if (document[object].items == 1) value.error = misspelling(document.key(document[object + 1]));
    return value;
  }
  const Value& inner = document[value.inner];
  const std::string_view key = document.key(inner);
  if (document[object].items != 1) {
    value.error = fmt::format("has other keys beside {}; expected it alone", key);
  } else if (value.special == Special::graph) {
    find_graph_parts(document, value);
  } else {
    const auto expected = value.special == Special::image ? Value::Type::string : Value::Type::array;
    if (inner.type == expected) return value;
    value.error = fmt::format("has {} after {}; expected {}", name_of(inner.type), key, name_of(expected));
  }
  return value;
}

}  // namespace ramify::signal
