#include "signal/target_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "signal/counted.h"
#include "signal/special_values.h"

namespace ramify::signal {

size_t find_value(const Document& document, const std::vector<PathStep>& steps) {
  size_t value = 0;
  for (const PathStep& step : steps) {
    value = document.member(value, step.key);
    if (value == 0) return 0;
  }
  return value;
}

std::string missing_target(const Document& document, const std::string& path) {
  const Value& record = document[0];
  if (record.type == Value::Type::object) return fmt::format("the target {} is missing", path);
  const std::string_view advice =
      record.type == Value::Type::array ? ", one a line: jq -c '.[]' makes that of one array" : "";
  return fmt::format("the record is {}, so that the target {} is missing; expected an object{}", name_of(record.type),
                     path, advice);
}

size_t find_items(const Document& document, size_t value) {
  if (document[value].type == Value::Type::array) return value;
  if (document[value].type != Value::Type::object) return 0;
  const SpecialValue special = special_value(document, value);
  const bool has_items = special.special == Special::set || special.special == Special::graph;
  return has_items && special.error.empty() ? special.inner : 0;
}

TargetReader::TargetReader(const Target& target, TargetUse use) : target_(target), use_(use) {
  path_ = parse_path(target.path);
  of_ = parse_path(target.of);
  for (size_t c = 0; c < target.classes.size(); ++c) classes_.emplace(target.classes[c], static_cast<int32_t>(c));
}

SignalTarget TargetReader::read(const Document& document) const {
  SignalTarget target;
  if (target_.task == Task::none) return target;
  try {
    const size_t value = find_value(document, path_);
    if (value == 0) throw BadRecord(missing_target(document, target_.path));
    read_known(document, value, target);
    target.known = true;
  } catch (const BadRecord&) {
    if (use_ == TargetUse::required) throw;
    target = {};
  }
  return target;
}

size_t TargetReader::items(const Document& document) const {
  if (target_.task != Task::nodes) return 0;
  const size_t value = find_value(document, of_);
  const size_t items = value == 0 ? 0 : find_items(document, value);
  if (items == 0) throw BadRecord(fmt::format("{}, whose items are to be labelled, is no array here", target_.of));
  return items;
}

void TargetReader::read_known(const Document& document, size_t place, SignalTarget& target) const {
  const Value& value = document[place];
  switch (target_.task) {
    case Task::none:
      return;
    case Task::classification:
      target.classes = {class_of(document, value)};
      return;
    case Task::regression:
      if (!value.is_number()) {
        throw BadRecord(fmt::format("the target {} is {}, expected a number", target_.path, name_of(value.type)));
      }
      target.value = value.number();
      return;
    case Task::multilabel:
    case Task::nodes:
      return read_list(document, place, target);
  }
}

void TargetReader::read_list(const Document& document, size_t place, SignalTarget& target) const {
  const Value& list = document[place];
  if (list.type != Value::Type::array) {
    throw BadRecord(fmt::format("the target {} is {}, expected an array", target_.path, name_of(list.type)));
  }
  const bool is_of_nodes = target_.task == Task::nodes;
  for (size_t i = place + 1; i < list.end; i = document[i].end) {
    const bool is_unlabelled = is_of_nodes && document[i].type == Value::Type::null;
    target.classes.push_back(is_unlabelled ? kNoClass : class_of(document, document[i]));
  }
  if (is_of_nodes) {
    const uint32_t items = document[this->items(document)].items;
    if (items == list.items) return;
    throw BadRecord(fmt::format("the target {} has {}, {} has {}", target_.path, counted(list.items, "label"),
                                target_.of, counted(items, "item")));
  }
  std::sort(target.classes.begin(), target.classes.end());
  target.classes.erase(std::unique(target.classes.begin(), target.classes.end()), target.classes.end());
}

int32_t TargetReader::class_of(const Document& document, const Value& value) const {
  if (value.type == Value::Type::null || value.type == Value::Type::array || value.type == Value::Type::object) {
    throw BadRecord(fmt::format("the target {} has {}, expected a class", target_.path, name_of(value.type)));
  }
  std::string buffer;
  const std::string_view written = document.written(value, buffer);
  const auto found = classes_.find(written);
  if (found == classes_.end() && target_.task != Task::multilabel) return kUnseenClass;
  if (found == classes_.end()) {
    throw BadRecord(fmt::format("the target {} is '{:.80}', which is none of the {} known from training", target_.path,
                                written, counted(static_cast<int64_t>(classes_.size()), "class", "classes")));
  }
  return found->second;
}

}  // namespace ramify::signal
