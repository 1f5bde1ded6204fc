// The confusion matrix of an evaluation as a heat map: rows are the truth, columns what was predicted. Right answers in
// one hue, errors in another, each shaded by its share of the row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/run.h"

namespace ramify::report {

// Parts of a row of blocks, empty where there is no matrix. Up to 30 classes with all counts; with more, the classes
// with most errors and a small picture of the whole.
std::string confusion_html(const Evaluation& evaluation);

// The pairs of classes confused most, as a table; empty where there are none.
std::string confused_pairs_html(const Evaluation& evaluation);

// What the counts of an evaluation are of: "Records", or "Items" where each has a label of its own.
const char* counted_name(const Evaluation& evaluation);

struct ConfusedPair {
  size_t truth = 0;
  size_t prediction = 0;
  int64_t count = 0;
  double share = 0;  // of the records of the true class
};

// The largest counts off the diagonal, largest first.
std::vector<ConfusedPair> most_confused(const std::vector<std::vector<int64_t>>& confusion, size_t count);

}  // namespace ramify::report
