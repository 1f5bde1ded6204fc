// The records of a run: those to learn from, those to choose the best epoch by, and the proof that they are still the
// same when the run goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "signal/dataset.h"
#include "train/replicas.h"
#include "train/settings.h"

namespace ramify::train {

inline constexpr const char* kStandardInput = "standard-input.jsonl";  // its copy in the run's folder

inline constexpr const char* kStandardText = "standard-input.txt";

struct DataFile {
  std::string path;
  int64_t bytes = 0;
  std::string sha256;
};

// Reads every file once.
std::vector<DataFile> data_files(const std::vector<std::string>& paths);
nlohmann::json to_json(const std::vector<DataFile>& files);
std::vector<DataFile> data_files_from_json(const nlohmann::json& json);  // nlohmann::json::exception
// io::Error naming the first one that is not what it was.
void check_unchanged(const std::vector<DataFile>& files);

// Training reads its data more than once: standard input ("-") among the files `train` becomes `copy`. `others` cannot
// come from there.
void keep_standard_input(std::vector<std::string>& train, const std::vector<std::string>& others,
                         const std::string& copy);

struct ReadingOptions {
  int workers = 0;
  std::shared_ptr<const signal::TextVectors> text_vectors;  // where the schema wants them
  std::function<void(const std::string& what, const signal::ReadProgress&)> on_progress;
  std::function<void(const std::string&)> on_note;
  Replicas replicas;  // each compiles a part of the records
};

// All records of the files; what was skipped becomes a note.
signal::Dataset read_records(const std::vector<std::string>& files, const std::string& what,
                             std::shared_ptr<const signal::Schema> schema, const DataSettings& settings,
                             const ReadingOptions& options);

struct RunData {
  signal::Dataset train;
  std::optional<signal::Dataset> separate_valid;
  std::optional<signal::Dataset> test;  // only where texts became vectors, which are not to be computed twice
  std::vector<int64_t> train_records, valid_records;  // valid_records may be empty: no validation is wanted

  const signal::Dataset& valid() const { return separate_valid ? *separate_valid : train; }
};

RunData read_run_data(const Settings& settings, std::shared_ptr<const signal::Schema> schema,
                      const ReadingOptions& options);

}  // namespace ramify::train
