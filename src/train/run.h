// A whole training run, from files of records to a folder with a model, its numbers and explanations.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/replicas.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace ramify::train {

// How a run is computed: of no influence on its result, up to rounding.
struct RunOptions {
  std::string folder;
  bool resume = false;  // go on with the run in the folder, if there is one
  std::string device = "cpu";
  int threads = 0;  // that compute; 0: as the run began, or as torch likes
  int workers = 0;  // threads that read and collate; 0: one a core
  bool deterministic = false;
  std::string leaf_cache;    // a file that keeps the vectors of Settings::data.leaf_encoder between runs
  int64_t explanations = 6;  // records whose trees are stored with their attention
  std::vector<std::string> command;
  Replicas replicas;  // that train together; `folder` is that of the first
};

// What a run says while it goes on.
class RunObserver : public TrainingObserver {
 public:
  virtual void on_reading(const std::string& /*what*/, const signal::ReadProgress&) {}
  virtual void on_ready(const RunDescription&, const signal::Dataset& /*train*/, const TrainingState& /*so far*/,
                        int64_t /*steps*/) {}
  virtual void on_note(const std::string& /*text*/) {}
};

struct RunResult {
  Outcome outcome = Outcome::finished;
  nlohmann::json evaluation;  // as in evaluation.json; empty if interrupted
};

// Throws std::invalid_argument for settings that cannot be, io::Error for files, Interrupted if a signal came before
// there was anything to save.
RunResult train(const Settings& settings, const RunOptions& options, RunObserver& observer);

// Scores of a trained model on other records, as in evaluation.json.
struct EvaluateOptions {
  std::string device = "cpu";
  int workers = 0;
  std::string on_bad = "fail", images;
  std::function<void(const signal::ReadProgress&)> on_reading;
  std::function<void(int64_t done, int64_t total)> on_progress;
};
// Interrupted if a signal came while vectors of texts were computed.
nlohmann::json evaluate_files(const std::string& folder, const std::vector<std::string>& files,
                              const EvaluateOptions& options, signal::BadRecords& bad);

}  // namespace ramify::train
