// Learning from nested records: classes, labels or numbers by their schema's target.
#pragma once

#include <optional>
#include <vector>

#include "ramify/nn/network.h"
#include "signal/dataset.h"
#include "signal/loader.h"
#include "train/feeder.h"
#include "train/replicas.h"
#include "train/settings.h"
#include "train/task.h"

namespace ramify::train {

struct RecordTaskParts {
  nn::Network& model;
  const signal::Dataset& train;
  std::vector<int64_t> train_records;
  const signal::Dataset& valid;
  std::vector<int64_t> valid_records;
  const Settings& settings;
  at::Device device = at::kCPU;
  int workers = 1;
  const Replicas& replicas;
};

class RecordTask final : public TrainingTask {
 public:
  explicit RecordTask(RecordTaskParts parts);  // what it refers to must outlive it

  nn::Module& model() override { return parts_.model; }
  std::vector<at::Tensor> row_tables() const override { return parts_.model.row_tables(); }
  int64_t num_batches(int64_t epoch) const override;
  void start(int64_t epoch, int64_t first_batch) override;
  bool advance() override;
  Step forward() override;
  void finish_epoch() override { feeder_.reset(); }
  bool has_validation() const override { return !parts_.valid_records.empty(); }
  std::optional<Validation> validate() override;
  void save_best(const std::string& folder) const override;
  std::vector<std::string_view> columns() const override;

 private:
  RecordTaskParts parts_;
  const signal::Target& target_;
  signal::Loader loader_;
  std::optional<Feeder> feeder_;
  std::optional<BatchTensors> batch_;
};

}  // namespace ramify::train
