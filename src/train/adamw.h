// AdamW over a fixed list of parameters, one fused pass over each.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/tensor_file.h"

namespace ramify::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

class AdamW {
 public:
  // Only matrices are decayed: biases, norms and the scales of numbers are not.
  AdamW(const models::NamedTensors& parameters, const AdamWOptions& options);

  // Takes the gradients as they are; a parameter without one keeps its value and its moments.
  // Gradients may be sparse, with a part of a matrix's rows: the others count as 0.
  void step(double rate);
  void clear_gradients();

  // Scales all gradients so that their norm is at most `limit`. Does not wait for the device.
  void clip_gradients(double limit);

  // Moments and step counts, by name; to be stored, and to be filled in a resumed run.
  models::NamedTensors state() const;

 private:
  void step_sparse(double rate);
  struct Slot {
    std::string name;
    at::Tensor parameter, mean, square, steps;
    bool decayed;
  };

  std::vector<Slot> slots_;
  AdamWOptions options_;
};

}  // namespace ramify::train
