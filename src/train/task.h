// What a run learns, as the training loop sees it. The loop (trainer.h) knows steps, rates, checkpoints and the best
// epoch; what a batch is, what its loss is and how the model is validated is known here. One class a kind of task:
// records (record_task.h), running text (language_task.h). Where several processes train together, each has a task of
// its own, with the same batches; it sees its part of each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ramify/nn/module.h"

namespace ramify::train {

class TrainingTask {
 public:
  struct Hits {
    int64_t rows = 0, right = 0;
  };
  // One batch through the model.
  struct Step {
    at::Tensor loss;                  // a mean, to be made small; undefined: this process has no part in the batch
    double weight = 1;                // how many rows or tokens it is the mean of
    int64_t records = 0, leaves = 0;  // for the speed
    std::function<Hits()> hits;       // waits for the device; none: the task has no accuracy
  };
  struct Validation {
    double loss = 0;
    double quality = 0;      // higher is better
    nlohmann::json figures;  // for people: accuracy, perplexity, ...
  };

  virtual ~TrainingTask() = default;

  virtual nn::Module& model() = 0;
  // Parameters whose gradients have only some rows.
  virtual std::vector<at::Tensor> row_tables() const { return {}; }

  // Batches of an epoch in an order that depends on its number alone; they may begin anywhere.
  virtual int64_t num_batches(int64_t epoch) const = 0;
  virtual void start(int64_t epoch, int64_t first_batch) = 0;
  virtual bool advance() = 0;     // to the next batch; false at the end of the epoch
  virtual Step forward() = 0;     // of the batch at hand
  virtual void finish_epoch() {}  // lets go of what batches were made with

  virtual bool has_validation() const = 0;  // without it the last epoch is the best
  // None: a signal was caught. The same in all processes.
  virtual std::optional<Validation> validate() = 0;

  // Stores the model as the best so far, as a whole or not at all.
  virtual void save_best(const std::string& folder) const = 0;

  // A line of metrics has loss, step, speeds and so on; a task may say them in its own words.
  virtual void complete(nlohmann::json& /*line*/) const {}
  virtual std::vector<std::string_view> columns() const = 0;  // of metrics.csv
};

}  // namespace ramify::train
