// Finds out what kind of thing is to be predicted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "signal/document.h"
#include "signal/field_notes.h"
#include "signal/field_statistics.h"
#include "signal/inference.h"
#include "signal/path.h"

namespace ramify::signal {

//   strings, booleans, few different integers    classification
//   other numbers                                regression
//   arrays                                       multilabel; with target_of: nodes
// Whether it is an array is told by the first record, unless the options say the task: a record that is not like it is
// a bad one.
class TargetInference {
 public:
  explicit TargetInference(const SchemaOptions& options);

  // BadRecord: it is missing, no target, or unlike those before. Then nothing of it is counted.
  void add(const Document& document, const RecordPlace& place = {});
  Target finish() const;     // io::Error: too many classes, or none
  std::string note() const;  // what the user may want to know; "": nothing

 private:
  [[noreturn]] void fail_missing(const Document& document) const;
  void check_is_list(const Value& value) const;
  void check_class(const Value& value) const;
  void add_class(const Document& document, const Value& value, const RecordPlace& place);
  bool are_few_integers() const;
  Task task() const;

  const SchemaOptions& options_;
  std::vector<PathStep> path_, of_;
  std::optional<bool> are_lists_;  // not known before the first record, or the task
  int64_t reals_ = 0, too_many_ = 0;
  ScalarMixture mixture_;
  NumberStatistics numbers_;
  std::unordered_set<std::string> classes_;
};

}  // namespace ramify::signal
