// A model's outputs on the records of a data set, without learning.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "ramify/nn/network.h"
#include "signal/dataset.h"
#include "signal/loader.h"
#include "train/objective.h"
#include "train/replicas.h"
#include "train/settings.h"

namespace ramify::train {

struct EvaluationOptions {
  signal::LoaderOptions loader;  // in the order as given
  at::Device device = at::kCPU;
  std::function<bool(int64_t records_done)> on_progress;  // false: stop
  Replicas replicas;                                      // that share the work; all get the same result
};
EvaluationOptions evaluation_options(const Settings& settings, at::Device device, int workers);

struct Evaluation {
  Scores scores;
  double loss = 0;  // the mean over rows
  int64_t records = 0, leaves = 0;
  double seconds = 0;
  std::vector<int64_t> wrong, right;  // classification: record numbers
  bool was_stopped = false;           // before the end, by any process

  nlohmann::json to_json() const;  // scores, loss, records, speed
};

Evaluation evaluate(nn::Network& model, const signal::Dataset& data, std::vector<int64_t> records,
                    const EvaluationOptions& options);

}  // namespace ramify::train
