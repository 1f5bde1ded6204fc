// A JSON record as one flat list of values in the order they are written, so that nothing recurses however deep it is
// nested. A document is read into again and again; it allocates only for records larger than any before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ramify::signal {

struct Value {
  enum class Type : uint8_t { null, boolean, integer, real, string, array, object };
  struct Text {
    uint32_t begin, size;  // in the document's letters
  };

  Type type = Type::null;
  bool boolean = false;
  uint32_t end = 0;    // place of the value after this one and all that is in it
  uint32_t items = 0;  // of an array or object
  Text key = {0, 0};   // of a member of an object
  union {
    int64_t integer = 0;
    double real;
    Text text;
  };

  bool is_number() const { return type == Type::integer || type == Type::real; }
  double number() const { return type == Type::integer ? static_cast<double>(integer) : real; }
};

class Document {
 public:
  struct Limits {
    int64_t max_depth = 1000;
    int64_t max_values = int64_t{1} << 22;
  };

  // Replaces the contents. Throws BadRecord for what is not JSON (with the column), nested too deep, has a number that
  // does not fit into 64 bits, a lone surrogate, bytes that are not UTF-8, or the same key twice in an object.
  void parse(std::string_view json, const Limits& limits);

  std::span<const Value> values() const { return values_; }
  const Value& operator[](size_t i) const { return values_[i]; }
  std::string_view text(const Value& value) const { return letters(value.text); }
  std::string_view key(const Value& value) const { return letters(value.key); }

  // A string, number or boolean as it is written; shortest form for numbers. `buffer` holds what is not a string.
  std::string_view written(const Value& value, std::string& buffer) const;

  // The member of an object; none: 0 (the root is no member).
  size_t member(size_t object, std::string_view key) const;

 private:
  friend class DocumentWriter;

  std::string_view letters(Value::Text text) const { return std::string_view(letters_).substr(text.begin, text.size); }

  std::vector<Value> values_;
  std::string letters_;  // of all keys and strings
};

// For messages: "a string", "an object", ...
std::string_view name_of(Value::Type type);

}  // namespace ramify::signal
