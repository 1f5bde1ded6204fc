// Predictions of a trained model for records, as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "signal/stream.h"
#include "train/run_folder.h"

namespace ramify::train {

class Predictor {
 public:
  explicit Predictor(const std::string& folder, const std::string& device = "cpu", const std::string& images = "");

  // One object a record, in order: {"prediction", "probabilities"}; for items of an array, a list of those under
  // "predictions"; "truncated" where the record has more leaves than the model takes. signal::BadRecord with the
  // place, from `first`, of a record that cannot be read. The second one gives {"error"} for outputs that are not
  // finite.
  std::vector<nlohmann::json> predict(std::span<const std::string> records, int64_t first = 0);
  std::vector<nlohmann::json> predict(std::span<const signal::Signal* const> signals);

  // The record's tree with the attention on its nodes (train/explain.h).
  nlohmann::json explain(const std::string& record);

  const RunDescription& run() const { return trained_.run; }
  const std::shared_ptr<const signal::Compiler>& compiler() const { return compiler_; }

 private:
  void predict_batch(std::span<const signal::Signal* const> signals, std::vector<nlohmann::json>& results);

  at::Device device_;
  TrainedModel trained_;
  std::shared_ptr<const signal::Compiler> compiler_, labelled_;
};

struct PredictOptions {
  int workers = 0;
  signal::OnBad on_bad = signal::OnBad::fail;
  std::function<void(const signal::ReadProgress&)> on_progress;
};

// All records of the files, streaming and in order; `write` gets one object each: the prediction, "line", and "file" if
// there are several. A bad record that is skipped has an "error" instead of a prediction, so that lines can still be
// matched. Returns how many were bad.
int64_t predict_files(Predictor& predictor, const std::vector<std::string>& files, const PredictOptions& options,
                      const std::function<void(const nlohmann::json&)>& write);

}  // namespace ramify::train
