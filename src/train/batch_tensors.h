// A collated batch as tensors on a device: the one place where signals meet the network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "ramify/nn/encoder.h"
#include "signal/batch.h"

namespace ramify::train {

struct TargetTensors {
  at::Tensor leaf_begin, leaf_end;  // [rows]
  at::Tensor classes, values;       // as in signal::Targets
  int64_t known_rows = 0;
};

struct BatchTensors {
  std::shared_ptr<const signal::Batch> source;
  nn::Batch input;
  TargetTensors targets;
};

// On the CPU the tensors are the arrays of `batch` themselves. Positions of a domain that the model was not made for
// become "none".
BatchTensors to_tensors(signal::Batch batch, const nn::ModelInputs& inputs, at::Device device);

}  // namespace ramify::train
