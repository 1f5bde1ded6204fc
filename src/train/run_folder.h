// The folder of a run: what was asked for, what was found in the data, and the model. docs/training.md lists its files.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ramify/nn/model.h"
#include "signal/schema.h"
#include "train/build_model.h"
#include "train/settings.h"

namespace ramify::train {

// What is stored of a run beside its numbers.
struct RunDescription {
  Settings settings;
  TokenTable tokens;
  std::shared_ptr<const signal::Schema> schema;
  nn::ParameterCounts parameters;
  std::vector<std::string> command;
  int64_t train_records = 0, valid_records = 0;
};

// config.json and schema.json.
void save_description(const std::string& folder, const RunDescription& run);
// io::Error naming the file for what is missing, broken or of another version.
RunDescription load_description(const std::string& folder);

// The model of a run as described, without its parameters.
std::shared_ptr<nn::Model> build_model(const RunDescription& run);

struct TrainedModel {
  RunDescription run;
  std::shared_ptr<nn::Model> model;  // in evaluation mode
};
// With the parameters of its best epoch. io::Error if nothing was trained yet.
TrainedModel load_trained(const std::string& folder, at::Device device = at::kCPU);

}  // namespace ramify::train
