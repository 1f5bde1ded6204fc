// What a model's outputs are for: the loss to be made small, and the scores that people read. One place for all tasks.
//
//   task             outputs a row      loss                             quality (higher is better)
//   classification   one a class        cross entropy                    accuracy
//   nodes            one a class        cross entropy over the items     accuracy over the items
//   multilabel       one a class        binary cross entropy             micro F1
//   regression       one                square error, in deviations      minus the root mean square error
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <variant>

#include "signal/batch.h"
#include "signal/schema.h"
#include "train/batch_tensors.h"
#include "train/metrics.h"

namespace ramify::train {

// The mean over the rows whose target is known; 0 if there is none. outputs [rows, outputs].
at::Tensor loss(const at::Tensor& outputs, const TargetTensors& targets, const signal::Target& target,
                double label_smoothing = 0);

// Gathers the outputs of many batches into scores.
class Scores {
 public:
  explicit Scores(const signal::Target& target);

  // Rows without a known target are passed over.
  void add(const at::Tensor& outputs, const signal::Targets& targets);

  int64_t rows() const { return rows_; }
  double quality() const;
  nlohmann::json figures() const;     // a few numbers: accuracy and F1, or errors
  nlohmann::json evaluation() const;  // all: also per class, confusion matrix, pairs

 private:
  void add_labels(const float* row, const float* truth);

  signal::Target target_;
  std::variant<Confusion, LabelCounts, NumberErrors> counts_;
  int64_t rows_ = 0;
};

// The prediction of one row, as `ramify predict` writes it: {"prediction": ..., "probabilities": {...}}.
nlohmann::json prediction(const at::Tensor& row, const signal::Target& target);

}  // namespace ramify::train
