#include "train/run_data.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "io/atomic_file.h"
#include "io/error.h"
#include "io/input_file.h"
#include "io/sha256.h"
#include "signal/loader.h"
#include "train/interrupt.h"

namespace ramify::train {

std::vector<DataFile> data_files(const std::vector<std::string>& paths) {
  std::vector<DataFile> files;
  for (const std::string& path : paths) {
    files.push_back({path, static_cast<int64_t>(std::filesystem::file_size(path)), io::sha256_file(path)});
  }
  return files;
}

nlohmann::json to_json(const std::vector<DataFile>& files) {
  nlohmann::json json = nlohmann::json::array();
  for (const DataFile& file : files) {
    json.push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return json;
}

std::vector<DataFile> data_files_from_json(const nlohmann::json& json) {
  std::vector<DataFile> files;
  for (const nlohmann::json& known : json) {
    files.push_back({known.at("path"), known.at("bytes"), known.at("sha256")});
  }
  return files;
}

void check_unchanged(const std::vector<DataFile>& files) {
  for (const DataFile& file : files) {
    std::error_code error;
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file.path, error));
    if (error) throw io::Error(file.path + ": " + error.message() + "; a resumed run needs the data it began with");
    if (bytes != file.bytes || io::sha256_file(file.path) != file.sha256) {
      throw io::Error(file.path + ": has changed since the run began; a resumed run needs the data it began with");
    }
  }
}

void keep_standard_input(std::vector<std::string>& train, const std::vector<std::string>& others,
                         const std::string& copy_path) {
  if (std::ranges::find(others, "-") != others.end()) {
    throw std::invalid_argument("only DATA can come from standard input, not --valid or --test");
  }
  for (std::string& file : train) {
    if (file != "-") continue;
    file = copy_path;
    io::InputFile input("-");
    io::AtomicFile copy(file);
    std::vector<std::byte> buffer(1 << 20);
    while (const size_t count = input.read(buffer)) {
      copy.write(std::string_view(reinterpret_cast<const char*>(buffer.data()), count));
      Interrupted::throw_if_caught();
    }
    copy.commit();
  }
}

signal::Dataset read_records(const std::vector<std::string>& files, const std::string& what,
                             std::shared_ptr<const signal::Schema> schema, const DataSettings& settings,
                             const ReadingOptions& options) {
  signal::DatasetOptions how;
  how.compiler.images = settings.images;
  how.compiler.text_vectors = options.text_vectors;
  how.on_bad = signal::on_bad_of(settings.on_bad);
  how.threads = options.workers;
  how.member = options.replicas.member();
  how.on_progress = [&](const signal::ReadProgress& progress) {
    Interrupted::throw_if_caught();
    options.on_progress(what, progress);
  };
  signal::Dataset data = signal::Dataset::read(files, std::move(schema), how);
  if (data.bad().count > 0) {
    options.on_note(std::to_string(data.bad().count) +
                    (data.bad().count == 1 ? " bad record was" : " bad records were") + " skipped in the " + what +
                    " data, first: " + data.bad().messages.front());
  }
  return data;
}

RunData read_run_data(const Settings& settings, std::shared_ptr<const signal::Schema> schema,
                      const ReadingOptions& options) {
  const DataSettings& files = settings.data;
  RunData data{.train = read_records(files.train, "training", schema, files, options),
               .separate_valid = std::nullopt,
               .test = std::nullopt,
               .train_records = {},
               .valid_records = {}};
  if (options.text_vectors && !files.test.empty()) data.test = read_records(files.test, "test", schema, files, options);
  if (!files.valid.empty()) {
    data.separate_valid = read_records(files.valid, "validation", schema, files, options);
    data.train_records = data.train.all_records();
    data.valid_records = data.separate_valid->all_records();
    return data;
  }
  signal::Split split = signal::split_records(data.train.size(), files.valid_fraction, settings.training.seed);
  data.train_records = std::move(split.train);
  data.valid_records = std::move(split.valid);
  if (data.train_records.empty() || (data.valid_records.empty() && files.valid_fraction > 0)) {
    throw io::Error(files.train.front() + ": too few records (" + std::to_string(data.train.size()) +
                    ") to learn from some and validate with others");
  }
  return data;
}

}  // namespace ramify::train
