#include "signal/target_inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "io/error.h"
#include "signal/compiler.h"
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

void TargetInference::add(const Document& document) {
  if (options_.target.empty()) return;
  const size_t place = find_value(document, path_);
  if (place == 0) throw BadRecord(fmt::format("the target {} is missing", options_.target));
  const Value& value = document[place];
  if (value.type != Value::Type::array) {
    if (!options_.target_of.empty()) {
      throw BadRecord(fmt::format("the target {} is {}, expected an array", options_.target, name_of(value.type)));
    }
    add_class(document, value);
    ++scalars_;
    return;
  }
  for (size_t i = place + 1; i < value.end; i = document[i].end) {
    const bool is_unlabelled = !options_.target_of.empty() && document[i].type == Value::Type::null;
    if (!is_unlabelled) add_class(document, document[i]);
  }
  ++lists_;
}

void TargetInference::add_class(const Document& document, const Value& value) {
  if (value.type == Value::Type::null || value.type == Value::Type::array || value.type == Value::Type::object) {
    throw BadRecord(
        fmt::format("the target {} has {}, expected a class or a number", options_.target, name_of(value.type)));
  }
  if (value.is_number()) numbers_.add(value.number());
  strings_ += !value.is_number();
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

Task TargetInference::task() const {
  const auto fail = [&](const std::string& message) {
    throw io::Error(fmt::format("the target {} {}", options_.target, message));
  };
  if (lists_ > 0 && scalars_ > 0) fail("is an array in some records and none in others");
  if (options_.task) {
    const bool wants_lists = *options_.task == Task::multilabel || *options_.task == Task::nodes;
    if (wants_lists != (lists_ > 0)) {
      fail(fmt::format("is {} array, which does not fit the task {}", lists_ > 0 ? "an" : "no",
                       name_of(*options_.task)));
    }
    if (*options_.task == Task::regression && strings_ > 0) fail("is not a number in all records, as regression needs");
    return *options_.task;
  }
  if (lists_ > 0) return options_.target_of.empty() ? Task::multilabel : Task::nodes;
  if (strings_ > 0) return Task::classification;
  const bool are_few = reals_ == 0 && static_cast<int64_t>(classes_.size()) <= options_.max_class_integers;
  return are_few ? Task::classification : Task::regression;
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
