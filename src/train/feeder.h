// Batches of a loader as tensors, made one ahead of the network: tensors, plan of the attention, copy to the device.
#pragma once

#include <cstdint>
#include <future>
#include <optional>

#include "ramify/nn/network.h"
#include "signal/loader.h"
#include "train/batch_tensors.h"

namespace ramify::train {

class Feeder {
 public:
  // Both must outlive the feeder.
  Feeder(signal::Loader& loader, const nn::Network& model, at::Device device);
  ~Feeder();

  void start(int64_t epoch, int64_t first_batch = 0);
  std::optional<BatchTensors> next();  // none at the end of the epoch

 private:
  std::optional<BatchTensors> make();

  signal::Loader& loader_;
  const nn::Network& model_;
  at::Device device_;
  std::future<std::optional<BatchTensors>> ahead_;
};

}  // namespace ramify::train
