// The folder of a run: what was asked for, what was found in the data, and the model. docs/training.md lists its files.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ramify/nn/network.h"
#include "signal/schema.h"
#include "train/build_model.h"
#include "train/replicas.h"
#include "train/run_data.h"
#include "train/settings.h"

namespace ramify::train {

inline constexpr const char* kRecordRun = "config.json";  // the description of a run on records

// Makes the folder of a new run, or finds that of one that goes on, and keeps others out while it lives. What it made
// is removed again if no run came of it.
class FolderLock {
 public:
  // io::Error: there is a run already and `resume` is false; another one is writing here; the folder has other files.
  FolderLock(std::string folder, bool resume, std::string description = kRecordRun);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string folder_, description_;
  bool is_new_;
  int descriptor_ = -1;
};

// Whether the folder has a run's description.
bool is_run(const std::string& folder, const std::string& description = kRecordRun);

// std::invalid_argument naming the first setting in which a run that goes on differs from what is asked for.
void check_same_settings(const nlohmann::json& before, const nlohmann::json& now);

// Of a run that goes on: the threads that it began with, unless others are asked for. A note if its bits may differ.
std::string resume_threads(int began_with, int asked, at::Device device);

// std::invalid_argument if they are not as many.
void check_processes(int64_t began_with, int64_t now);

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second);

// What is stored of a run beside its numbers.
struct RunDescription {
  Settings settings;
  TokenTable tokens;
  std::shared_ptr<const signal::Schema> schema;
  nn::ParameterCounts parameters;
  std::vector<std::string> command;
  int64_t train_records = 0, valid_records = 0;
  std::vector<DataFile> files;  // that were learned from and validated with
  int threads = 0;              // the same number gives the same bits on the CPU
  int64_t processes = 1;        // each has batches of the size that the settings say
};

// config.json and schema.json.
void save_description(const std::string& folder, const RunDescription& run);
// io::Error naming the file for what is missing, broken or of another version.
RunDescription load_description(const std::string& folder);
// What the first process has, everywhere: only that one knows the folder.
void tell_description(const Replicas& replicas, RunDescription& run);

// The model of a run as described, with random parameters.
std::shared_ptr<nn::Network> build_network(const RunDescription& run);

struct TrainedModel {
  RunDescription run;
  std::shared_ptr<nn::Network> model;  // in evaluation mode
};
// With the parameters of its best epoch. io::Error if nothing was trained yet.
TrainedModel load_trained(const std::string& folder, at::Device device = at::kCPU);

}  // namespace ramify::train
