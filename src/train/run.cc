#include "train/run.h"

#include <ATen/Context.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "io/atomic_file.h"
#include "io/error.h"
#include "train/device.h"
#include "train/explain.h"
#include "train/interrupt.h"

namespace ramify::train {
namespace {

namespace fs = std::filesystem;

// The records of a run: those to learn from, and those to choose the best epoch by, which may be a part of the same.
struct RunData {
  signal::Dataset train;
  std::optional<signal::Dataset> separate_valid;
  std::vector<int64_t> train_records, valid_records;

  const signal::Dataset& valid() const { return separate_valid ? *separate_valid : train; }
};

std::vector<int64_t> all_records(const signal::Dataset& data) {
  std::vector<int64_t> records(data.size());
  for (size_t i = 0; i < records.size(); ++i) records[i] = static_cast<int64_t>(i);
  return records;
}

signal::Dataset read_dataset(const std::vector<std::string>& files, const std::string& what,
                             std::shared_ptr<const signal::Schema> schema, const DataSettings& settings,
                             const RunOptions& options, RunObserver& observer) {
  signal::DatasetOptions how;
  how.compiler.images = settings.images;
  how.on_bad = signal::on_bad_of(settings.on_bad);
  how.threads = options.workers;
  how.on_progress = [&](const signal::ReadProgress& progress) { observer.on_reading(what, progress); };
  signal::Dataset data = signal::Dataset::read(files, std::move(schema), how);
  if (data.bad().count > 0) {
    observer.on_note(std::to_string(data.bad().count) + " bad records were skipped in the " + what +
                     " data, first: " + data.bad().messages.front());
  }
  return data;
}

RunData read_data(const RunDescription& run, const RunOptions& options, RunObserver& observer) {
  const DataSettings& settings = run.settings.data;
  RunData data{.train = read_dataset(settings.train, "training", run.schema, settings, options, observer),
               .separate_valid = std::nullopt,
               .train_records = {},
               .valid_records = {}};
  if (!settings.valid.empty()) {
    data.separate_valid = read_dataset(settings.valid, "validation", run.schema, settings, options, observer);
    data.train_records = all_records(data.train);
    data.valid_records = all_records(*data.separate_valid);
    return data;
  }
  signal::Split split = signal::split_records(data.train.size(), settings.valid_fraction, run.settings.training.seed);
  data.train_records = std::move(split.train);
  data.valid_records = std::move(split.valid);
  if (data.train_records.empty() || data.valid_records.empty()) {
    throw io::Error(settings.train.front() + ": " + std::to_string(data.train.size()) +
                    " records are too few to learn from some and validate with others");
  }
  return data;
}

// Training reads its data more than once, so standard input is kept in the run's folder.
void keep_standard_input(std::vector<std::string>& files, const std::string& folder) {
  for (std::string& file : files) {
    if (file != "-") continue;
    file = folder + "/standard-input.jsonl";
    io::AtomicFile copy(file);
    std::vector<char> buffer(1 << 20);
    while (std::cin.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), std::cin.gcount() > 0) {
      copy.write(std::string_view(buffer.data(), static_cast<size_t>(std::cin.gcount())));
    }
    copy.commit();
  }
}

void check_target(const signal::Schema& schema) {
  const signal::Target& target = schema.target;
  if (target.task != signal::Task::regression && target.classes.size() < 2) {
    throw io::Error("target " + target.path + " has " + std::to_string(target.classes.size()) +
                    " different value(s) in the training data; there is nothing to tell apart");
  }
}

RunDescription new_run(Settings settings, const RunOptions& options, RunObserver& observer, at::Tensor& vectors) {
  if (settings.data.target.empty()) throw std::invalid_argument("no target; say with --target which field to predict");
  keep_standard_input(settings.data.train, options.folder);
  RunDescription run{.settings = std::move(settings), .command = options.command};
  run.schema = std::make_shared<const signal::Schema>(
      signal::infer_schema(run.settings.data.train, run.settings.data.options(),
                           [&](const signal::ReadProgress& progress) { observer.on_reading("schema", progress); }));
  check_target(*run.schema);
  if (!run.settings.data.word_vectors.empty()) {
    int64_t missing = 0;
    vectors = read_token_vectors(run.settings.data.word_vectors, *run.schema, missing);
    run.tokens = {.width = vectors.size(1), .frozen = !run.settings.data.train_vectors};
    observer.on_note(std::to_string(vectors.size(0) - missing) + " of " + std::to_string(vectors.size(0)) +
                     " tokens have word vectors");
  }
  return run;
}

// One writer a folder: a second run in it would mix both.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : descriptor_(open((folder + "/lock").c_str(), O_CREAT | O_RDWR, 0666)) {
    if (descriptor_ < 0) throw io::Error(folder + ": cannot write here: " + std::string(std::strerror(errno)));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    if (fcntl(descriptor_, F_SETLK, &lock) != 0) {
      close(descriptor_);
      throw io::Error(folder + ": another run is writing here");
    }
  }
  ~FolderLock() { close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

void make_folder(const RunOptions& options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) throw io::Error(options.folder + ": cannot make this folder: " + error.message());
  if (!options.resume && fs::exists(options.folder + "/config.json")) {
    throw io::Error(options.folder + ": there is a run already; go on with it by --resume, or choose another --out");
  }
}

// What differs between the settings of a stored run and those that were asked for.
void check_same(const Settings& stored, const Settings& asked) {
  const nlohmann::json before = stored.to_json(), now = asked.to_json();
  const auto check = [](const std::string& key, const nlohmann::json& was, const nlohmann::json& is) {
    if (was == is) return;
    throw std::invalid_argument("--resume: " + key + " was " + was.dump() + ", not " + is.dump() +
                                "; a resumed run must have the same settings");
  };
  for (const auto& [part, values] : now.items()) {
    if (!values.is_object()) {
      check(part, before[part], values);
      continue;
    }
    for (const auto& [key, value] : values.items()) check(part + "." + key, before[part][key], value);
  }
}

// Half of them wrong, if there are so many: those teach more.
std::vector<int64_t> chosen_records(const Evaluation& evaluation, const std::vector<int64_t>& all, int64_t count) {
  std::vector<int64_t> chosen;
  const auto take = [&](const std::vector<int64_t>& from, int64_t upto) {
    for (const int64_t record : from) {
      if (static_cast<int64_t>(chosen.size()) >= upto) return;
      if (std::ranges::find(chosen, record) == chosen.end()) chosen.push_back(record);
    }
  };
  take(evaluation.wrong, count / 2);
  take(evaluation.right, count);
  take(all, count);
  return chosen;
}

nlohmann::json evaluate_best(const RunDescription& run, const RunData& data, nn::Model& model, at::Device device,
                             const RunOptions& options, RunObserver& observer) {
  load_model(options.folder + "/model", model);
  model.eval();
  const EvaluationOptions how = evaluation_options(run.settings, device, options.workers);
  const Evaluation valid = evaluate(model, data.valid(), data.valid_records, how);
  nlohmann::json evaluation = {{"valid", valid.to_json()}};
  if (!run.settings.data.test.empty()) {
    const signal::Dataset test =
        read_dataset(run.settings.data.test, "test", run.schema, run.settings.data, options, observer);
    evaluation["test"] = evaluate(model, test, all_records(test), how).to_json();
  }
  evaluation["peak_memory_bytes"] = peak_memory(device);
  if (options.explanations > 0) {
    const nlohmann::json explained = explain_records(
        model, run, data.valid(), chosen_records(valid, data.valid_records, options.explanations), device);
    io::write_file_atomic(options.folder + "/explanations.json", explained.dump() + "\n");
  }
  io::write_file_atomic(options.folder + "/evaluation.json", evaluation.dump(2) + "\n");
  return evaluation;
}

}  // namespace

RunResult train(const Settings& settings, const RunOptions& options, RunObserver& observer) {
  const InterruptGuard interrupts;
  const at::Device device = open_device(options.device);
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  make_folder(options);
  const FolderLock lock(options.folder);

  const bool goes_on = options.resume && fs::exists(options.folder + "/config.json");
  at::Tensor vectors;
  RunDescription run = goes_on ? load_description(options.folder) : new_run(settings, options, observer, vectors);
  if (goes_on && !settings.data.train.empty()) check_same(run.settings, settings);
  const RunData data = read_data(run, options, observer);
  const auto model = build_model(run);
  if (vectors.defined()) model->set_table("token", vectors, !run.tokens.frozen);
  model->to(device);
  run.parameters = model->parameter_counts();
  run.train_records = static_cast<int64_t>(data.train_records.size());
  run.valid_records = static_cast<int64_t>(data.valid_records.size());
  if (!goes_on) save_description(options.folder, run);

  Trainer trainer({.model = *model,
                   .train = data.train,
                   .train_records = data.train_records,
                   .valid = data.valid(),
                   .valid_records = data.valid_records,
                   .settings = run.settings,
                   .folder = options.folder,
                   .device = device,
                   .workers = std::max(1, options.workers),
                   .observer = observer});
  if (goes_on) trainer.resume();
  observer.on_ready(run, data.train, trainer.total_steps());
  RunResult result{.outcome = trainer.run(), .evaluation = {}};
  if (result.outcome != Outcome::interrupted) {
    result.evaluation = evaluate_best(run, data, *model, device, options, observer);
  }
  return result;
}

nlohmann::json evaluate_files(const std::string& folder, const std::vector<std::string>& files,
                              const EvaluateOptions& options, signal::BadRecords& bad) {
  const at::Device device = open_device(options.device);
  const TrainedModel trained = load_trained(folder, device);
  signal::DatasetOptions reading;
  reading.compiler.images = options.images.empty() ? trained.run.settings.data.images : options.images;
  reading.on_bad = signal::on_bad_of(options.on_bad);
  reading.threads = options.workers;
  const signal::Dataset data = signal::Dataset::read(files, trained.run.schema, reading);
  bad = data.bad();
  EvaluationOptions how = evaluation_options(trained.run.settings, device, options.workers);
  how.on_progress = [&](int64_t done) {
    if (options.on_progress) options.on_progress(done, data.size());
    return InterruptGuard::caught() == 0;
  };
  return evaluate(*trained.model, data, all_records(data), how).to_json();
}

}  // namespace ramify::train
