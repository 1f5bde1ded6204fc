#include "signal/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/error.h"
#include "signal/compiler.h"
#include "text/utf8.h"

namespace ramify::signal {
namespace {

constexpr size_t kKeptValues = size_t{1} << 16;  // larger documents give their memory back
constexpr size_t kKeptLetters = size_t{1} << 20;

// What the parser says, about a text that is one line.
std::string readable(std::string_view what) {
  std::string message = io::json_reason(what);
  constexpr std::string_view kPlace = "parse error at line 1, ";
  if (message.starts_with(kPlace)) message.erase(0, kPlace.size());
  return text::valid_utf8(message);
}

// Of a line that is the first of a file with one document over many lines; else nothing.
std::string_view advice(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = std::min(line.find_first_not_of(kBlank), line.size());
  line = line.substr(begin, line.find_last_not_of(kBlank) + 1 - begin);
  if (line == "{") return "; one record a line is expected: jq -c . makes that of records over several lines";
  const bool begins_array = line == "[" || (line.starts_with('[') && line.ends_with(','));
  return begins_array ? "; one record a line is expected: jq -c '.[]' makes that of one array" : "";
}

}  // namespace

// Receives the parser's events.
class DocumentWriter {
 public:
  DocumentWriter(Document& document, const Document::Limits& limits)
      : values_(document.values_), letters_(document.letters_), document_(document), limits_(limits) {}

  bool null() { return add(Value::Type::null) != nullptr || go_on(); }
  bool boolean(bool boolean) {
    if (Value* value = add(Value::Type::boolean)) value->boolean = boolean;
    return go_on();
  }
  bool number_integer(int64_t number) {
    if (Value* value = add(Value::Type::integer)) value->integer = number;
    return go_on();
  }
  bool number_unsigned(uint64_t number) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail(fmt::format("the number {} does not fit into 64 bits", number));
    }
    return number_integer(static_cast<int64_t>(number));
  }
  bool number_float(double number, const std::string& written) {
    if (written.find_first_of(".eE") == std::string::npos) {
      return fail(fmt::format("the number {} does not fit into 64 bits", written.substr(0, 40)));
    }
    if (Value* value = add(Value::Type::real)) value->real = number;
    return go_on();
  }
  bool string(const std::string& text) {
    if (Value* value = add(Value::Type::string)) value->text = store(text);
    return go_on();
  }
  bool binary(nlohmann::json::binary_t&) { return false; }  // JSON has none

  bool start_object(size_t) { return open(Value::Type::object); }
  bool start_array(size_t) { return open(Value::Type::array); }
  bool key(const std::string& text) {
    if (!too_deep()) key_ = store(text);
    return go_on();
  }
  bool end_object() { return close() && go_on(); }
  bool end_array() { return close() && go_on(); }

  bool parse_error(size_t column, const std::string& token, const nlohmann::json::exception& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      return fail(fmt::format("the number {:.40} is out of range, column {}", token, column));
    }
    is_json_ = false;
    return fail("not JSON: " + readable(error.what()));
  }

  void check(std::string_view json) const {
    if (!error_.empty()) throw BadRecord(is_json_ ? error_ : error_ + std::string(advice(json)));
    if (too_deep()) {
      throw BadRecord(fmt::format("nested {} levels deep; at most {} are read", deepest_, limits_.max_depth));
    }
  }

 private:
  bool too_deep() const { return deepest_ > limits_.max_depth; }  // then levels are still counted, for the message
  bool go_on() const { return error_.empty(); }
  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  Value* add(Value::Type type) {
    if (too_deep()) return nullptr;
    if (static_cast<int64_t>(values_.size()) >= limits_.max_values) {
      fail(fmt::format("more than {} values in one record", limits_.max_values));
      return nullptr;
    }
    if (!open_.empty()) ++values_[open_.back()].items;
    Value& value = values_.emplace_back();
    value.type = type;
    value.key = key_;
    value.end = static_cast<uint32_t>(values_.size());
    key_ = {0, 0};
    return &value;
  }

  bool open(Value::Type type) {
    deepest_ = std::max(deepest_, ++depth_);
    if (add(type) != nullptr) open_.push_back(values_.size() - 1);
    return go_on();
  }

  bool close() {
    --depth_;
    if (too_deep()) return true;
    const size_t begin = open_.back();
    open_.pop_back();
    values_[begin].end = static_cast<uint32_t>(values_.size());
    return values_[begin].type != Value::Type::object || check_keys(begin);
  }

  bool check_keys(size_t object) {
    keys_.clear();
    for (size_t i = object + 1; i < values_[object].end; i = values_[i].end) keys_.push_back(document_.key(values_[i]));
    constexpr size_t kFew = 12;
    if (keys_.size() > kFew) std::sort(keys_.begin(), keys_.end());
    for (size_t i = 1; i < keys_.size(); ++i) {
      const size_t first = keys_.size() > kFew ? i - 1 : 0;
      for (size_t k = first; k < i; ++k) {
        if (keys_[k] == keys_[i]) return fail(fmt::format("the key {:.100} comes twice in one object", keys_[i]));
      }
    }
    return true;
  }

  Value::Text store(const std::string& text) {
    const Value::Text stored = {static_cast<uint32_t>(letters_.size()), static_cast<uint32_t>(text.size())};
    letters_ += text;
    return stored;
  }

  std::vector<Value>& values_;
  std::string& letters_;
  const Document& document_;
  const Document::Limits limits_;
  std::vector<size_t> open_;
  std::vector<std::string_view> keys_;
  Value::Text key_ = {0, 0};
  int64_t depth_ = 0;
  int64_t deepest_ = 0;
  bool is_json_ = true;
  std::string error_;
};

void Document::parse(std::string_view json, const Limits& limits) {
  if (values_.capacity() > kKeptValues) std::vector<Value>().swap(values_);
  if (letters_.capacity() > kKeptLetters) std::string().swap(letters_);
  values_.clear();
  letters_.clear();
  DocumentWriter writer(*this, limits);
  nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &writer);
  writer.check(json);
}

std::string_view Document::written(const Value& value, std::string& buffer) const {
  if (value.type == Value::Type::string) return text(value);
  if (value.type == Value::Type::boolean) return value.boolean ? "true" : "false";
  char digits[32];
  const auto end = value.type == Value::Type::integer ? std::to_chars(digits, std::end(digits), value.integer)
                                                      : std::to_chars(digits, std::end(digits), value.real);
  buffer.assign(digits, end.ptr);
  return buffer;
}

size_t Document::member(size_t object, std::string_view wanted) const {
  if (values_[object].type != Value::Type::object) return 0;
  for (size_t i = object + 1; i < values_[object].end; i = values_[i].end) {
    if (key(values_[i]) == wanted) return i;
  }
  return 0;
}

std::string_view name_of(Value::Type type) {
  switch (type) {
    case Value::Type::null:
      return "null";
    case Value::Type::boolean:
      return "true or false";
    case Value::Type::integer:
    case Value::Type::real:
      return "a number";
    case Value::Type::string:
      return "a string";
    case Value::Type::array:
      return "an array";
    case Value::Type::object:
      return "an object";
  }
  return "";
}

}  // namespace ramify::signal
