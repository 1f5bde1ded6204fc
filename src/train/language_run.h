// Training a language model, from text files to a folder that is a published model and has the run's numbers beside it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/config.h"
#include "train/language_settings.h"
#include "train/run.h"

namespace ramify::train {

inline constexpr const char* kLanguageRun = "run.json";  // config.json is the model's

// What is stored of a run beside its numbers.
struct LanguageRun {
  LanguageSettings settings;
  models::ModelConfig model;
  nn::ParameterCounts parameters;  // "encoder": the layers; "tables": the vectors of words, also the output layer
  std::vector<std::string> command;
  int64_t train_tokens = 0, valid_tokens = 0;        // of the texts
  int64_t train_sequences = 0, valid_sequences = 0;  // cut from them
  std::vector<DataFile> files;
  int threads = 0;
  int64_t processes = 1;  // each has batches of the size that the settings say
};
// io::Error naming the file for what is missing, broken or of another version.
LanguageRun load_language_run(const std::string& folder);

// What a run says while it goes on.
class LanguageObserver : public TrainingObserver {
 public:
  virtual void on_reading(const std::string& /*what*/, double /*share*/, int64_t /*tokens*/) {}
  virtual void on_ready(const LanguageRun&, const TrainingState& /*so far*/, int64_t /*steps*/) {}
  virtual void on_note(const std::string& /*text*/) {}
};

// As train() does it for records; of the options, those about leaves and explanations are of no use here.
RunResult train_language(const LanguageSettings& settings, const RunOptions& options, LanguageObserver& observer);

}  // namespace ramify::train
