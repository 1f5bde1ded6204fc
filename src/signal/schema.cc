#include "signal/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "signal/category_rows.h"

namespace ramify::signal {
namespace {

template <class Enum, size_t n>
using Names = std::array<std::pair<Enum, std::string_view>, n>;

constexpr Names<Kind, 13> kKinds = {{{Kind::object, "object"},
                                     {Kind::array, "array"},
                                     {Kind::set, "set"},
                                     {Kind::graph, "graph"},
                                     {Kind::text, "text"},
                                     {Kind::text_leaf, "text-leaf"},
                                     {Kind::category, "category"},
                                     {Kind::boolean, "boolean"},
                                     {Kind::number, "number"},
                                     {Kind::image, "image"},
                                     {Kind::vector, "vector"},
                                     {Kind::null, "null"},
                                     {Kind::ignore, "ignore"}}};
constexpr Names<TextLevel, 3> kTextLevels = {
    {{TextLevel::paragraph, "paragraph"}, {TextLevel::sentence, "sentence"}, {TextLevel::token, "token"}}};
constexpr Names<LeafLevel, 4> kLeafLevels = {{{LeafLevel::table, "table"},
                                              {LeafLevel::token, "token"},
                                              {LeafLevel::sentence, "sentence"},
                                              {LeafLevel::paragraph, "paragraph"}}};
constexpr Names<Task, 5> kTasks = {{{Task::none, "none"},
                                    {Task::classification, "classification"},
                                    {Task::regression, "regression"},
                                    {Task::multilabel, "multilabel"},
                                    {Task::nodes, "nodes"}}};

template <class Enum, size_t n>
std::string_view name_in(const Names<Enum, n>& names, Enum value) {
  return std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == value; })->second;
}

template <class Enum>
std::string list_names(std::span<const std::pair<Enum, std::string_view>> names) {
  std::string list;
  for (const auto& [value, known] : names) list += (list.empty() ? "" : ", ") + std::string(known);
  return list;
}

template <class Enum>
Enum value_in(std::span<const std::pair<Enum, std::string_view>> names, std::string_view name, std::string_view what) {
  for (const auto& [value, known] : names) {
    if (known == name) return value;
  }
  throw std::invalid_argument(fmt::format("'{}' is no {}; expected one of {}", name, what, list_names(names)));
}

}  // namespace

std::string_view name_of(Kind kind) {
  return name_in(kKinds, kind);
}
Kind kind_of(std::string_view name) {
  return value_in<Kind>(kKinds, name, "kind of field");
}
std::string kind_names() {
  return list_names<Kind>(kKinds);
}
std::string_view name_of(TextLevel level) {
  return name_in(kTextLevels, level);
}
std::string_view name_of(LeafLevel level) {
  return name_in(kLeafLevels, level);
}
LeafLevel leaf_level_of(std::string_view name) {
  return value_in<LeafLevel>(kLeafLevels, name, "level of leaves");
}
std::string_view name_of(Task task) {
  return name_in(kTasks, task);
}
Task task_of(std::string_view name) {
  return value_in<Task>(std::span(kTasks).subspan(1), name, "task");  // without none
}

std::vector<TextLevel> parse_text_levels(std::string_view list) {
  if (list == name_of(Kind::text_leaf)) return {};
  std::vector<TextLevel> levels;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const auto level = value_in<TextLevel>(kTextLevels, list.substr(begin, end - begin), "level of texts");
    if (!levels.empty() && level <= levels.back()) {
      throw std::invalid_argument(
          fmt::format("text levels '{}' are out of order; expected paragraph, sentence, token "
                      "in this order",
                      list));
    }
    levels.push_back(level);
    begin = end + 1;
  }
  if (levels.back() != TextLevel::token) {
    throw std::invalid_argument(fmt::format("text levels '{}' do not end in token", list));
  }
  return levels;
}

float Field::normalised(double number) const {
  const double scaled = logarithmic ? std::log1p(std::max(number, 0.0)) : number;
  return static_cast<float>(std::clamp((scaled - mean) / deviation, -kMaxNormalised, kMaxNormalised));
}

CategoryTable category_table(const std::vector<Field>& fields) {
  CategoryTable table;
  int64_t& next = table.size;
  const auto take = [&](int64_t count) {
    next += count;
    return static_cast<int32_t>(next - count);
  };
  for (const Field& field : fields) {
    CategoryRows rows;
    if (field.kind == Kind::category || field.kind == Kind::text_leaf) {
      rows.values = take(static_cast<int64_t>(field.values.size()));
      rows.other = take(1);
    }
    if (field.kind == Kind::boolean) rows.values = take(2);
    if (field.nulls > 0) rows.null = take(1);
    if (field.empties > 0) rows.empty = take(1);
    table.rows.push_back(rows);
  }
  return table;
}

std::vector<std::string> Schema::category_names() const {
  const CategoryTable table = category_table(fields);
  std::vector<std::string> names(static_cast<size_t>(table.size));
  names[kUnknownValue] = "unknown";
  names[kEmpty] = "empty";
  names[kNull] = "null";
  names[kFalse] = "false";
  names[kTrue] = "true";
  for (size_t f = 0; f < fields.size(); ++f) {
    const Field& field = fields[f];
    const CategoryRows& rows = table.rows[f];
    const auto name = [&](int32_t row, std::string_view value) { names[row] = field.path + "=" + std::string(value); };
    for (size_t v = 0; v < field.values.size(); ++v) name(rows.values + static_cast<int32_t>(v), field.values[v]);
    if (rows.other >= kGenericCategories) name(rows.other, "(other)");
    if (rows.null >= kGenericCategories) name(rows.null, "null");
    if (rows.empty >= kGenericCategories) name(rows.empty, "(empty)");
    if (field.kind == Kind::boolean) {
      name(rows.values, "false");
      name(rows.values + 1, "true");
    }
  }
  return names;
}

std::vector<Modality> Schema::modalities() const {
  std::vector<Modality> modalities = {{"token", Feature::ids, tokenizer ? tokenizer->size() : 1},
                                      {"category", Feature::ids, category_table(fields).size}};
  int64_t numbers = 0;
  bool has_images = false;
  std::set<int64_t> widths;
  for (const Field& field : fields) {
    numbers += field.kind == Kind::number;
    has_images |= field.kind == Kind::image;
    if (field.kind == Kind::vector) widths.insert(field.width);
  }
  if (numbers > 0) modalities.push_back({"number", Feature::numbers, numbers + 1});
  if (has_images) modalities.push_back({"patch", Feature::dense, 3 * image.patch * image.patch});
  for (const int64_t width : widths) modalities.push_back({fmt::format("vector:{}", width), Feature::dense, width});
  if (has_text_vectors()) modalities.push_back({"text", Feature::dense, leaf_encoding->width});
  return modalities;
}

int64_t Schema::num_outputs() const {
  if (target.task == Task::none) return 0;
  return target.task == Task::regression ? 1 : static_cast<int64_t>(target.classes.size());
}

std::string key_words(std::string_view key) {
  std::string words;
  const auto is = [](int (*kind)(int), char letter) { return kind(static_cast<unsigned char>(letter)) != 0; };
  for (size_t i = 0; i < key.size(); ++i) {
    const bool begins_word = i > 0 && is(std::isupper, key[i]) && is(std::islower, key[i - 1]);
    if (begins_word) words += ' ';
    words += key[i] == '_' || key[i] == '-' || key[i] == '.' ? ' ' : key[i];
  }
  return words;
}

}  // namespace ramify::signal
