// What a training run can be told, beside its data and its model. Also the "training" part of a config file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace ramify::train {

struct TrainingOptions {
  int64_t epochs = 10;
  double rate = 1e-3;          // of the learning, at its height
  double warmup = 0.05;        // share of all steps in which the rate rises
  double weight_decay = 0.01;  // of matrices; vectors are not decayed
  double clip = 1;             // largest norm of a step's gradients
  int64_t batch_records = 32;  // a batch ends at whichever comes first
  int64_t batch_leaves = 16384;
  int64_t patience = 0;  // epochs without a better validation before it stops; 0: never
  double label_smoothing = 0;
  uint64_t seed = 0;
  std::string dtype = "float32";   // of products and attention: float32 or bfloat16; float64 is that of parameters, too
  int64_t log_every = 50;          // steps between two lines of metrics
  int64_t checkpoint_every = 500;  // steps between two checkpoints; one more at each epoch's end

  // Throws std::invalid_argument for an unknown key or a value out of its range, naming it.
  static TrainingOptions from_json(const nlohmann::json& json);
  nlohmann::json to_json() const;
};

}  // namespace ramify::train
