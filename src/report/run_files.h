// The files of a run folder, one function each: their text to plain values. `name` is the file's, for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/run.h"

namespace ramify::report {

RunConfig read_config(std::string_view text, const std::string& name);

// A last line that was cut off is left out, with a note: a run may be killed while it writes.
std::vector<MetricLine> read_metrics(std::string_view text, const std::string& name, std::vector<std::string>& notes);

struct EvaluationFile {
  std::vector<Evaluation> splits;  // test, valid, others
  double peak_memory_bytes = 0;    // 0: not given
};
EvaluationFile read_evaluations(std::string_view text, const std::string& name);

std::vector<Explanation> read_explanations(std::string_view text, const std::string& name);

}  // namespace ramify::report
