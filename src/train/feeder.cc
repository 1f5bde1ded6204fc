#include "train/feeder.h"

namespace ramify::train {

Feeder::Feeder(signal::Loader& loader, const nn::Model& model, at::Device device)
    : loader_(loader), model_(model), device_(device) {}

Feeder::~Feeder() {
  if (ahead_.valid()) ahead_.wait();
}

void Feeder::start(int64_t epoch, int64_t first_batch) {
  if (ahead_.valid()) ahead_.wait();
  loader_.start(epoch, first_batch);
  ahead_ = std::async(std::launch::async, [this] { return make(); });
}

std::optional<BatchTensors> Feeder::next() {
  std::optional<BatchTensors> batch = ahead_.get();
  if (batch) ahead_ = std::async(std::launch::async, [this] { return make(); });
  return batch;
}

std::optional<BatchTensors> Feeder::make() {
  std::optional<signal::Batch> batch = loader_.next();
  if (!batch) return std::nullopt;
  BatchTensors tensors = to_tensors(std::move(*batch), model_.encoder().inputs(), device_);
  for (const nn::LayerConfig& layer : model_.config().layers) {
    if (layer.attention == nn::Attention::none || layer.pooling.kind != nn::LocalPooling::Kind::none) break;
    tensors.input.forest.plan(layer.tie, Causal::none);  // kept by the forest
  }
  return tensors;
}

}  // namespace ramify::train
