#include "report/json_file.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <system_error>

#include "io/atomic_file.h"

namespace ramify::report {
namespace {

using Json = nlohmann::json;

std::string key_place(const std::string& place, const std::string& key) {
  const bool is_top = place.ends_with(": ");
  return place + (is_top ? "" : ".") + key;
}

}  // namespace

void JsonField::fail(std::string_view expected) const {
  const std::string place = place_.ends_with(": ") ? place_ : place_ + ": ";
  throw Error(fmt::format("{}expected {}, found {}", place, expected, value_->type_name()));
}

std::optional<JsonField> JsonField::find(const std::string& key) const {
  if (!value_->is_object()) fail("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonField(*found, key_place(place_, key));
}

JsonField JsonField::at(const std::string& key) const {
  if (std::optional<JsonField> found = find(key)) return *found;
  throw Error(fmt::format("{}: missing", key_place(place_, key)));
}

std::vector<JsonField> JsonField::items() const {
  if (!value_->is_array()) fail("a list");
  std::vector<JsonField> items;
  for (const Json& item : *value_) items.emplace_back(item, fmt::format("{}[{}]", place_, items.size()));
  return items;
}

std::vector<std::pair<std::string, JsonField>> JsonField::members() const {
  if (!value_->is_object()) fail("an object");
  std::vector<std::pair<std::string, JsonField>> members;
  for (const auto& [key, value] : value_->items()) members.emplace_back(key, JsonField(value, key_place(place_, key)));
  return members;
}

std::string JsonField::text() const {
  if (!value_->is_string()) fail("a text");
  return value_->get<std::string>();
}

double JsonField::number() const {
  if (value_->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value_->is_number()) fail("a number");
  return value_->get<double>();
}

int64_t JsonField::count() const {
  const double number = value_->is_number() ? value_->get<double>() : -1;
  if (!(number >= 0) || number > 9e15 || number != std::floor(number)) fail("a count");
  return static_cast<int64_t>(number);
}

std::vector<std::string> JsonField::texts() const {
  std::vector<std::string> texts;
  for (const JsonField& item : items()) texts.push_back(item.text());
  return texts;
}

std::vector<double> JsonField::numbers() const {
  if (!value_->is_array()) fail("a list of numbers");
  std::vector<double> numbers;
  numbers.reserve(value_->size());
  for (const Json& item : *value_) {
    if (!item.is_number()) JsonField(item, fmt::format("{}[{}]", place_, numbers.size())).fail("a number");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::string JsonField::shown() const {
  if (value_->is_string()) return value_->get<std::string>();
  if (value_->is_object()) return "{\xE2\x80\xA6}";
  if (value_->is_number_float()) return fmt::format("{:.6g}", value_->get<double>());
  if (!value_->is_array()) return value_->dump();
  std::string list;
  for (const Json& item : *value_) {
    if (list.size() > 400) return list + ", \xE2\x80\xA6";
    list += (list.empty() ? "" : ", ") + (item.is_array() ? "[\xE2\x80\xA6]" : JsonField(item, place_).shown());
  }
  return list;
}

std::optional<std::string> read_if_there(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) return std::nullopt;
  return io::read_file(path.string(), kMaxFileBytes);
}

Json parse_json(std::string_view text, const std::string& name) {
  const auto bound_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth) throw Error(fmt::format("{}: nested deeper than {} levels", name, kMaxJsonDepth));
    return true;
  };
  try {
    return Json::parse(text, bound_depth);
  } catch (const Json::parse_error& error) {
    throw Error(fmt::format("{}: not JSON at byte {}", name, error.byte));
  } catch (const Json::exception&) {
    throw Error(fmt::format("{}: holds a number out of range", name));
  }
}

}  // namespace ramify::report
