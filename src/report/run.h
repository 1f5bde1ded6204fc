// What a run folder of `ramify train` holds, as plain values. Only config.json must be there: a run that was stopped
// has no evaluation, and what it had written until then is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/tree.h"

namespace ramify::report {

using Figure = std::pair<std::string, double>;  // "macro_f1", 0.87

// The value of a name; NaN where there is none.
double figure(const std::vector<Figure>& figures, std::string_view name);

struct MetricLine {
  std::string split;  // train, valid
  double step = 0;
  double epoch = 0;  // NaN: not given
  std::vector<Figure> figures;
};

struct ClassScore {
  std::string name;
  double precision = 0, recall = 0, f1 = 0;
  int64_t support = 0;
};

struct Evaluation {
  std::string split;
  int64_t records = 0;
  std::optional<int64_t> items;  // of labels of items: what the figures count
  std::vector<Figure> figures;   // loss, accuracy, ...
  std::vector<std::string> classes;
  std::vector<std::vector<int64_t>> confusion;  // row = truth; empty, or as many rows and columns as classes
  std::vector<ClassScore> per_class;
  std::vector<std::pair<double, double>> pairs;  // of a regression: truth and prediction
};

struct Explanation {
  int64_t line = 0;
  std::vector<std::string> prediction;                        // one; the labels that hold; or one an item
  std::optional<std::vector<std::string>> truth;              // the same; none: not known. Of an item empty: not known
  std::vector<std::pair<std::string, double>> probabilities;  // most probable first
  TreeNode tree;
};

struct RunConfig {
  std::string version, attention, task, target;
  std::string target_of;  // path of the array whose items have the labels; empty: the record has
  std::string train;      // files
  std::optional<int64_t> seed;
  int64_t records = 0, classes = 0;  // 0: not given
  int64_t parameters = 0, encoder_parameters = 0, table_parameters = 0;
  std::string command;
  std::vector<std::pair<std::string, std::string>> settings;  // "model.layers[0].heads", "3"
  std::string all_but_seed;  // the whole file as JSON without seed and command: equal in runs that can be averaged
};

struct Run {
  std::string name;  // the folder's
  RunConfig config;
  std::vector<MetricLine> metrics;
  std::vector<Evaluation> evaluations;  // test, valid, others
  double peak_memory_bytes = 0;         // 0: not given
  std::vector<Explanation> explanations;
  std::vector<std::string> notes;  // what is missing, in words
};

// The evaluation that figures are taken from: of the test split, else of another. Null: none.
const Evaluation* main_evaluation(const Run& run);

// Throws Error naming the file and the field.
Run read_run(const std::filesystem::path& folder);

// Each is named after its folder; after the whole path where folders of two have one name.
std::vector<Run> read_runs(const std::vector<std::filesystem::path>& folders);

}  // namespace ramify::report
