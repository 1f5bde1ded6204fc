#include "train/feeder.h"

namespace ramify::train {

Feeder::Feeder(signal::Loader& loader, const nn::Network& model, at::Device device)
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
  if (batch->records.empty()) {  // other processes have all of it
    const auto nothing = std::make_shared<const signal::Batch>(std::move(*batch));
    return BatchTensors{.source = nothing, .input = {.forest = {nothing->forest, device_}}, .targets = {}};
  }
  BatchTensors tensors = to_tensors(std::move(*batch), model_.inputs(), device_);
  model_.prepare(tensors.input);
  return tensors;
}

}  // namespace ramify::train
