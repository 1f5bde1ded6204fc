// Finds out what kind of thing is to be predicted.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "signal/document.h"
#include "signal/field_statistics.h"
#include "signal/inference.h"
#include "signal/path.h"

namespace ramify::signal {

//   strings, booleans, few different integers    classification
//   other numbers                                regression
//   arrays                                       multilabel; with target_of: nodes
class TargetInference {
 public:
  explicit TargetInference(const SchemaOptions& options);

  void add(const Document& document);  // BadRecord: it is missing, or no target
  Target finish() const;               // io::Error: no task fits

 private:
  void add_class(const Document& document, const Value& value);
  Task task() const;

  const SchemaOptions& options_;
  std::vector<PathStep> path_, of_;
  int64_t scalars_ = 0, lists_ = 0, strings_ = 0, reals_ = 0, too_many_ = 0;
  NumberStatistics numbers_;
  std::unordered_set<std::string> classes_;
};

}  // namespace ramify::signal
