#include "report/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>

#include "report/json_file.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

std::string folder_name(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, error);
  const std::string name = (error ? folder : whole).filename().string();
  return name.empty() ? folder.string() : name;
}

}  // namespace

double figure(const std::vector<Figure>& figures, std::string_view name) {
  const auto found =
      std::find_if(figures.begin(), figures.end(), [&](const Figure& each) { return each.first == name; });
  return found == figures.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

const Evaluation* main_evaluation(const Run& run) {
  return run.evaluations.empty() ? nullptr : &run.evaluations.front();
}

Run read_run(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw Error(folder.string() + ": expected a folder that `ramify train --out` wrote");
  }
  Run run;
  run.name = folder_name(folder);
  const auto file = [&](const char* name) { return (folder / name).string(); };

  const std::optional<std::string> config = read_if_there(file("config.json"));
  if (!config) throw Error(file("config.json") + ": missing; expected a folder that `ramify train --out` wrote");
  run.config = read_config(*config, file("config.json"));

  const std::optional<std::string> metrics = read_if_there(file("metrics.jsonl"));
  if (metrics) run.metrics = read_metrics(*metrics, file("metrics.jsonl"), run.notes);
  if (run.metrics.empty()) run.notes.emplace_back("No metrics yet (metrics.jsonl).");

  const std::optional<std::string> evaluation = read_if_there(file("evaluation.json"));
  if (evaluation) {
    EvaluationFile read = read_evaluations(*evaluation, file("evaluation.json"));
    run.evaluations = std::move(read.splits);
    run.peak_memory_bytes = read.peak_memory_bytes;
  } else {
    run.notes.emplace_back("Not evaluated yet (evaluation.json): the run goes on, or was stopped before its end.");
  }
  const std::optional<std::string> explanations = read_if_there(file("explanations.json"));
  if (explanations) run.explanations = read_explanations(*explanations, file("explanations.json"));
  return run;
}

std::vector<Run> read_runs(const std::vector<std::filesystem::path>& folders) {
  std::vector<Run> runs;
  std::map<std::string, int> uses;
  for (const std::filesystem::path& folder : folders) {
    runs.push_back(read_run(folder));
    ++uses[runs.back().name];
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (uses[runs[i].name] > 1) runs[i].name = folders[i].string();
  }
  return runs;
}

}  // namespace ramify::report
