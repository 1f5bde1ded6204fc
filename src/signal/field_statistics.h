// What is seen at one path while a schema is inferred, and the fields that it makes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "signal/inference.h"
#include "signal/schema.h"
#include "text/vocabulary.h"

namespace ramify::signal {

// Mean and deviation of numbers as they come (Welford).
struct NumberStatistics {
  int64_t count = 0;
  double mean = 0;
  double squares = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void add(double number);
  double deviation() const;  // 1 where all are the same
};

// Counted values, as long as they are few, short and no sentences.
class FewValues {
 public:
  FewValues(int64_t max_values, int64_t max_bytes) : max_values_(max_values), max_bytes_(max_bytes) {}

  bool are_few() const { return are_few_; }
  // False if the value is not taken: then, and for ever after, they are not few. What was counted stays until clear().
  bool add(std::string_view value);
  const auto& counts() const { return counts_; }
  void clear() { counts_.clear(); }
  // Each comes twice on average.
  bool are_repeated() const;
  std::vector<std::string> by_falling_count() const;  // ties by bytes

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view value) const { return std::hash<std::string_view>{}(value); }
  };
  int64_t max_values_, max_bytes_;
  bool are_few_ = true;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

class FieldStatistics {
 public:
  // Where the words of texts are counted.
  using CountWords = std::function<void(std::string_view text, int64_t count)>;

  FieldStatistics(const SchemaOptions& options, std::optional<Declaration> declared);

  bool is_seen() const { return seen_ > 0; }
  int64_t first_seen() const { return first_seen_; }
  void see(int64_t time) {  // any value
    if (seen_++ == 0) first_seen_ = time;
  }

  void add_null() { ++nulls_; }
  void add_family(Kind kind, bool is_empty);  // object, array, set, graph
  void add_image() { ++images_; }
  // False: another width than before.
  bool can_add_vector(int64_t width) const { return vectors_ == 0 || width == width_; }
  bool add_vector(int64_t width);
  void add_number(double number, std::string_view written, const CountWords& count_words);
  void add_boolean(std::string_view written, const CountWords& count_words);
  void add_string(std::string_view text, const CountWords& count_words);

  bool is_declared(Kind kind) const { return declared_ && declared_->kind == kind; }
  int64_t vector_width() const { return width_; }

  // One for each sort of value, most often one. `count_words` gets the values of what turned out to be a text.
  std::vector<Field> fields(const std::string& path, const CountWords& count_words) const;

 private:
  void add_value(std::string_view written, bool is_text, const CountWords& count_words);
  Kind scalar_kind() const;
  Field scalar_field(Kind kind, const CountWords& count_words) const;
  void describe_numbers(Field& field) const;

  const SchemaOptions& options_;
  std::optional<Declaration> declared_;
  int64_t seen_ = 0, first_seen_ = 0;
  int64_t objects_ = 0, arrays_ = 0, sets_ = 0, graphs_ = 0, images_ = 0, vectors_ = 0;
  int64_t strings_ = 0, booleans_ = 0, nulls_ = 0, empty_families_ = 0, blank_strings_ = 0;
  int64_t width_ = 0;
  NumberStatistics numbers_, logarithms_;
  FewValues few_;
  text::VocabularyBuilder known_;  // values of what is one leaf
};

}  // namespace ramify::signal
