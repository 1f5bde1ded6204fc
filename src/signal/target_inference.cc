#include "signal/target_inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "io/error.h"
#include "signal/compiler.h"
#include "signal/similar_names.h"
#include "signal/target_reader.h"

namespace ramify::signal {
namespace {

std::vector<PathStep> path_of_keys(const std::string& path, const char* what) {
  std::vector<PathStep> steps = parse_path(path);
  for (const PathStep& step : steps) {
    if (step.is_item)
      throw std::invalid_argument(fmt::format("the {} {} is inside an array; expected keys only", what, path));
  }
  return steps;
}

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Numbers by value, before the rest by bytes.
bool comes_before(const std::string& a, const std::string& b) {
  const auto a_number = number_in(a), b_number = number_in(b);
  if (a_number && b_number && *a_number != *b_number) return *a_number < *b_number;
  if (a_number.has_value() != b_number.has_value()) return a_number.has_value();
  return a < b;
}

}  // namespace

TargetInference::TargetInference(const SchemaOptions& options) : options_(options) {
  path_ = path_of_keys(options.target, "target");
  of_ = path_of_keys(options.target_of, "target-of");
  if (!options.target_of.empty() && options.target.empty()) {
    throw std::invalid_argument("target-of is given without a target");
  }
  if (!options.target_of.empty() && options.task.value_or(Task::nodes) != Task::nodes) {
    throw std::invalid_argument("target-of is for the task nodes only");
  }
  if (options.task == Task::nodes && options.target_of.empty()) {
    throw std::invalid_argument("the task nodes needs target-of: the array whose items the labels are for");
  }
}

// With the keys that are there, or one that is nearly the same.
void TargetInference::fail_missing(const Document& document) const {
  constexpr size_t kMostKeys = 8;
  std::string message = missing_target(document, options_.target);
  size_t object = 0, depth = 0;
  while (const size_t next = document.member(object, path_[depth].key)) object = next, ++depth;
  if (document[object].type != Value::Type::object) throw BadRecord(message);
  std::vector<std::string> keys;
  for (size_t i = object + 1; i < document[object].end; i = document[i].end) {
    std::vector<PathStep> steps(path_.begin(), path_.begin() + static_cast<int64_t>(depth));
    steps.push_back({std::string(document.key(document[i])), false});
    keys.push_back(write_path(steps));
  }
  if (const std::string meant = did_you_mean(options_.target, keys); !meant.empty()) throw BadRecord(message + meant);
  if (!keys.empty()) message += "; there is ";
  for (size_t k = 0; k < std::min(keys.size(), kMostKeys); ++k) message += (k == 0 ? "" : ", ") + keys[k];
  throw BadRecord(keys.size() > kMostKeys ? message + ", …" : message);
}

void TargetInference::add(const Document& document, const RecordPlace& place) {
  if (options_.target.empty()) return;
  const size_t begin = find_value(document, path_);
  if (begin == 0) fail_missing(document);
  const Value& value = document[begin];
  std::vector<size_t> classes;  // where they are
  if (value.type != Value::Type::array) classes = {begin};
  for (size_t i = begin + 1; i < value.end && value.type == Value::Type::array; i = document[i].end) {
    const bool is_unlabelled = !options_.target_of.empty() && document[i].type == Value::Type::null;
    if (!is_unlabelled) classes.push_back(i);
  }
  check_is_list(value);
  for (const size_t i : classes) check_class(document[i]);
  for (const size_t i : classes) add_class(document, document[i], place);
  are_lists_ = value.type == Value::Type::array;
}

void TargetInference::check_is_list(const Value& value) const {
  const bool is_list = value.type == Value::Type::array;
  if (!options_.target_of.empty() && !is_list) {
    throw BadRecord(fmt::format("the target {} is {}, expected an array", options_.target, name_of(value.type)));
  }
  if (options_.task) {
    const bool wants_list = *options_.task == Task::multilabel || *options_.task == Task::nodes;
    if (wants_list == is_list) return;
    throw BadRecord(fmt::format("the target {} is {} array, which does not fit the task {}", options_.target,
                                is_list ? "an" : "no", name_of(*options_.task)));
  }
  if (are_lists_.value_or(is_list) == is_list) return;
  throw BadRecord(fmt::format("the target {} is {}, in the records before it is {}", options_.target,
                              name_of(value.type), *are_lists_ ? "an array" : "none"));
}

void TargetInference::check_class(const Value& value) const {
  if (value.type == Value::Type::null || value.type == Value::Type::array || value.type == Value::Type::object) {
    throw BadRecord(
        fmt::format("the target {} has {}, expected a class or a number", options_.target, name_of(value.type)));
  }
  if (options_.task == Task::regression && !value.is_number()) {
    throw BadRecord(fmt::format("the target {} is {}, expected a number for the task regression", options_.target,
                                name_of(value.type)));
  }
}

void TargetInference::add_class(const Document& document, const Value& value, const RecordPlace& place) {
  mixture_.add(value.type, place);
  if (value.is_number()) numbers_.add(value.number());
  reals_ += value.type == Value::Type::real;
  std::string buffer;
  const std::string written(document.written(value, buffer));
  if (classes_.contains(written)) return;
  if (static_cast<int64_t>(classes_.size()) < options_.max_classes) {
    classes_.insert(written);
  } else {
    ++too_many_;
  }
}

bool TargetInference::are_few_integers() const {
  return reals_ == 0 && static_cast<int64_t>(classes_.size()) <= options_.max_class_integers;
}

Task TargetInference::task() const {
  if (options_.task) return *options_.task;
  if (are_lists_.value_or(false)) return options_.target_of.empty() ? Task::multilabel : Task::nodes;
  const bool are_numbers = mixture_.count(Kind::text) + mixture_.count(Kind::boolean) == 0;
  return are_numbers && !are_few_integers() ? Task::regression : Task::classification;
}

// Of numbers that would be a regression, were it not for a few others.
std::string TargetInference::note() const {
  if (options_.target.empty() || options_.task || task() != Task::classification) return "";
  if (mixture_.prevailing() != Kind::number || are_few_integers()) return "";
  return fmt::format("{}: {}: these are classes; with --task regression only numbers are taken", options_.target,
                     mixture_.text());
}

Target TargetInference::finish() const {
  Target target;
  if (options_.target.empty()) return target;
  target.path = options_.target;
  target.of = options_.target_of;
  target.task = task();
  if (target.task == Task::regression) {
    target.mean = numbers_.mean;
    target.deviation = numbers_.deviation();
    if (!std::isfinite(target.mean) || !std::isfinite(target.deviation)) {
      throw io::Error(fmt::format("the numbers of the target {} are too large; divide them", target.path));
    }
    return target;
  }
  if (too_many_ > 0) {
    throw io::Error(fmt::format("the target {} has more than {} different values; expected classes, or numbers only",
                                target.path, options_.max_classes));
  }
  target.classes.assign(classes_.begin(), classes_.end());
  std::sort(target.classes.begin(), target.classes.end(), comes_before);
  if (target.classes.empty()) throw io::Error(fmt::format("the target {} has no class in any record", target.path));
  return target;
}

}  // namespace ramify::signal
