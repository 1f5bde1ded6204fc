// Where a run stands, on disk: parameters, moments and counts, so that it can go on as if it had never stopped.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "models/tensor_file.h"
#include "ramify/nn/module.h"
#include "train/adamw.h"

namespace ramify::train {

struct TrainingState {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t batch = 0;  // of the epoch: the next one
  double best_quality = 0;
  int64_t best_epoch = -1;  // none yet
  bool finished = false;
  double seconds = 0;  // spent so far
  // since the last line of metrics
  double loss_sum = 0;
  int64_t loss_count = 0, rows = 0, right = 0;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(TrainingState, step, epoch, batch, best_quality, best_epoch, finished, seconds,
                                 loss_sum, loss_count, rows, right)
};

// All tensors of a model, parameters and buffers, by name.
models::NamedTensors model_tensors(const nn::Module& model);

// Writes `folder` as a whole (io::FolderWriter); the one before survives until then.
void save_checkpoint(const std::string& folder, const nn::Module& model, const AdamW& optimizer,
                     const TrainingState& state);

// io::Error if the folder is broken, or of another model.
TrainingState load_checkpoint(const std::string& folder, nn::Module& model, AdamW& optimizer);

// A folder with the model alone.
void save_model(const std::string& folder, const nn::Module& model);
void load_model(const std::string& folder, nn::Module& model);

}  // namespace ramify::train
