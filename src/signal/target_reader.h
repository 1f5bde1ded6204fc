// Reads what is to be predicted out of a record.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "signal/compiler.h"
#include "signal/document.h"
#include "signal/path.h"
#include "signal/schema.h"
#include "signal/signal.h"

namespace ramify::signal {

// Follows keys only; 0: not there.
size_t find_value(const Document& document, const std::vector<PathStep>& steps);
// Says that the target is missing: the end of a message about the record.
std::string missing_target(const Document& document, const std::string& path);
// The array of the items: of a plain array, {"$set": [...]} or {"$graph": {"nodes": [...]}}; 0: it is none of these.
size_t find_items(const Document& document, size_t value);

class TargetReader {
 public:
  TargetReader(const Target& target, TargetUse use);

  // Without leaf ranges. BadRecord where one is required and it is missing or of no use.
  SignalTarget read(const Document& document) const;
  // Task::nodes: the array whose items are labelled. 0: none.
  size_t items(const Document& document) const;

 private:
  void read_known(const Document& document, size_t value, SignalTarget& target) const;
  void read_list(const Document& document, size_t value, SignalTarget& target) const;
  int32_t class_of(const Document& document, const Value& value) const;

  const Target& target_;
  TargetUse use_;
  std::vector<PathStep> path_, of_;
  std::unordered_map<std::string_view, int32_t> classes_;  // points into the target
};

}  // namespace ramify::signal
