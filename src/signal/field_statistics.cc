#include "signal/field_statistics.h"

#include <algorithm>
#include <cmath>

#include "signal/schema_index.h"

namespace ramify::signal {
namespace {

constexpr size_t kMaxKnownDistinct = size_t{1} << 20;  // of one text-leaf, while counting

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

// More than a label: several lines, many words, or an end as sentences have it.
bool is_sentence(std::string_view text) {
  constexpr int kMaxWords = 8, kMaxWordsWithFullStop = 3;  // "St. Louis Inc." is a label
  if (text.find('\n') != std::string_view::npos) return true;
  const auto words = std::count(text.begin(), text.end(), ' ') + 1;
  const bool has_full_stop = text.ends_with('.') || text.ends_with('!') || text.ends_with('?');
  return words > (has_full_stop ? kMaxWordsWithFullStop : kMaxWords);
}

}  // namespace

void NumberStatistics::add(double number) {
  ++count;
  const double from_old_mean = number - mean;
  mean += from_old_mean / static_cast<double>(count);
  squares += from_old_mean * (number - mean);
  min = std::min(min, number);
  max = std::max(max, number);
}

double NumberStatistics::deviation() const {
  const double deviation = count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;
  return deviation > 0 ? deviation : 1;
}

bool FewValues::add(std::string_view value) {
  if (!are_few_) return false;
  if (const auto found = counts_.find(value); found != counts_.end()) {
    ++found->second;
    return true;
  }
  are_few_ = static_cast<int64_t>(counts_.size()) < max_values_ && static_cast<int64_t>(value.size()) <= max_bytes_ &&
             !is_sentence(value);
  if (are_few_) counts_.emplace(value, 1);
  return are_few_;
}

bool FewValues::are_repeated() const {
  int64_t total = 0;
  for (const auto& [value, count] : counts_) total += count;
  return total >= 2 * static_cast<int64_t>(counts_.size());
}

std::vector<std::string> FewValues::by_falling_count() const {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [value, count] : counts_) sorted.emplace_back(-count, value);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> values;
  for (auto& [count, value] : sorted) values.push_back(std::move(value));
  return values;
}

FieldStatistics::FieldStatistics(const SchemaOptions& options, std::optional<Declaration> declared)
    : options_(options),
      declared_(std::move(declared)),
      few_(options.max_categories, options.max_category_bytes),
      known_(kMaxKnownDistinct) {}

void FieldStatistics::add_family(Kind kind, bool is_empty) {
  int64_t& count = kind == Kind::object  ? objects_
                   : kind == Kind::set   ? sets_
                   : kind == Kind::graph ? graphs_
                                         : arrays_;
  ++count;
  empty_families_ += is_empty;
}

bool FieldStatistics::add_vector(int64_t width) {
  if (!can_add_vector(width)) return false;
  width_ = width;
  ++vectors_;
  return true;
}

void FieldStatistics::add_number(double number, std::string_view written, const CountWords& count_words) {
  numbers_.add(number);
  if (number >= 0) logarithms_.add(std::log1p(number));
  // numbers are only of interest as text where they are beside strings
  add_value(written, strings_ > 0 || is_declared(Kind::text), count_words);
}

void FieldStatistics::add_boolean(std::string_view written, const CountWords& count_words) {
  ++booleans_;
  add_value(written, strings_ > 0 || is_declared(Kind::text), count_words);
}

void FieldStatistics::add_string(std::string_view text, const CountWords& count_words) {
  ++strings_;
  blank_strings_ += is_blank(text);
  add_value(text, /*is_text=*/true, count_words);
}

void FieldStatistics::add_value(std::string_view written, bool is_text, const CountWords& count_words) {
  if (is_declared(Kind::category) || is_declared(Kind::text_leaf)) return known_.add(written);
  if (is_declared(Kind::number) || is_declared(Kind::boolean)) return;
  const bool is_declared_text = is_declared(Kind::text);
  if (!is_declared_text && few_.add(written)) return;
  const auto count = [&](std::string_view value, int64_t times) {
    if (options_.text_levels.empty() && !is_declared_text) return known_.add(value, times);
    count_words(value, times);
  };
  if (is_text) {
    for (const auto& [value, times] : few_.counts()) count(value, times);
    few_.clear();
    count(written, 1);
  }
}

Kind FieldStatistics::scalar_kind() const {
  const bool is_declared_scalar = declared_ && !is_declared(Kind::null) && slot_of(declared_->kind) == kScalarSlot;
  if (is_declared_scalar) return declared_->kind;
  const int64_t numbers = numbers_.count;
  if (strings_ == 0 && booleans_ == 0) return Kind::number;
  if (strings_ == 0 && numbers == 0) return Kind::boolean;
  if (few_.are_few() && few_.are_repeated()) return Kind::category;
  return options_.text_levels.empty() ? Kind::text_leaf : Kind::text;
}

Field FieldStatistics::scalar_field(Kind kind, const CountWords& count_words) const {
  Field field = {.kind = kind, .count = strings_ + booleans_ + numbers_.count};
  if (kind == Kind::number) describe_numbers(field);
  if (kind == Kind::text) {
    field.levels = declared_ && declared_->levels ? *declared_->levels : options_.text_levels;
    if (field.levels.empty()) field.levels = {TextLevel::paragraph, TextLevel::sentence, TextLevel::token};
    field.empties = blank_strings_;
    for (const auto& [value, count] : few_.counts()) count_words(value, count);
  }
  const bool is_declared = declared_ && declared_->kind == kind;
  if (kind == Kind::category && !is_declared) field.values = few_.by_falling_count();
  if (kind == Kind::text_leaf || (kind == Kind::category && is_declared)) {
    text::VocabularyBuilder known = known_;
    for (const auto& [value, count] : few_.counts()) known.add(value, count);
    field.values = known.build({.min_count = 1, .max_size = options_.max_text_leaves + 1}).tokens();
    field.values.erase(field.values.begin());  // the vocabulary's unknown; ours is "other"
  }
  return field;
}

void FieldStatistics::describe_numbers(Field& field) const {
  field.min = numbers_.count > 0 ? numbers_.min : 0;
  field.max = numbers_.count > 0 ? numbers_.max : 0;
  constexpr double kSkewed = 2;  // mean over geometric mean; a log-normal spread of 1.2
  field.logarithmic = numbers_.count > 0 && numbers_.min >= 0 && numbers_.mean > kSkewed * std::expm1(logarithms_.mean);
  const NumberStatistics& scaled = field.logarithmic ? logarithms_ : numbers_;
  field.mean = scaled.mean;
  field.deviation = scaled.deviation();
  if (std::isfinite(field.mean) && std::isfinite(field.deviation)) return;
  field.mean = 0;  // squares too large to be added
  field.deviation = std::max(std::abs(field.min), std::abs(field.max));
}

std::vector<Field> FieldStatistics::fields(const std::string& path, const CountWords& count_words) const {
  std::vector<Field> fields;
  if (objects_ > 0) fields.push_back({.kind = Kind::object, .count = objects_});
  if (const int64_t lists = arrays_ + sets_ + graphs_; lists > 0) {
    // {"$set": ...} and {"$graph": ...} say themselves what they are; this is about plain arrays
    const Kind kind = is_declared(Kind::set) ? Kind::set
                      : arrays_ > 0          ? Kind::array
                      : graphs_ > 0          ? Kind::graph
                                             : Kind::set;
    fields.push_back({.kind = kind, .count = lists, .graphs = graphs_});
  }
  if (strings_ + booleans_ + numbers_.count > 0) fields.push_back(scalar_field(scalar_kind(), count_words));
  if (images_ > 0) fields.push_back({.kind = Kind::image, .count = images_});
  if (vectors_ > 0) fields.push_back({.kind = Kind::vector, .count = vectors_, .width = width_});
  if (fields.empty()) fields.push_back({.kind = Kind::null});
  fields.front().nulls = nulls_;
  fields.front().empties += empty_families_;
  for (Field& field : fields) field.path = path;
  return fields;
}

}  // namespace ramify::signal
