// JSON files as typed fields. Whatever is not as expected is an error that names the file and the field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/error.h"

namespace ramify::report {

using io::Error;

inline constexpr size_t kMaxFileBytes = size_t{256} << 20;
inline constexpr int kMaxJsonDepth = 4096;

// One value of a document and where it stands there. Does not own it.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }  // "runs/a/evaluation.json: valid.loss"

  JsonField at(const std::string& key) const;                   // of an object; must be there
  std::optional<JsonField> find(const std::string& key) const;  // none: not there, or null

  std::vector<JsonField> items() const;                            // of an array
  std::vector<std::pair<std::string, JsonField>> members() const;  // of an object

  std::string text() const;
  double number() const;  // null is NaN: that is how JSON holds what is not finite
  int64_t count() const;  // an integer that is not negative
  std::vector<std::string> texts() const;
  std::vector<double> numbers() const;

  // What a person reads: a text as it is, a list with commas, a number as JSON; what is nested deeper is an ellipsis.
  std::string shown() const;

  [[noreturn]] void fail(std::string_view expected) const;  // "PLACE: expected ..., found ..."

 private:
  const nlohmann::json* value_;
  std::string place_;
};

// All bytes; none: there is no such file.
std::optional<std::string> read_if_there(const std::filesystem::path& path);

// name: of the file (and line), for messages.
nlohmann::json parse_json(std::string_view text, const std::string& name);

}  // namespace ramify::report
