#include "train/run_folder.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "io/atomic_file.h"
#include "io/error.h"
#include "io/folder.h"
#include "io/leftovers.h"
#include "ramify/version.h"
#include "train/checkpoint.h"

namespace ramify::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
constexpr const char* kSchema = "schema.json";
constexpr size_t kMaxConfigBytes = size_t{256} << 20;  // a schema has the whole vocabulary

nlohmann::json read_json(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(io::read_file(path, kMaxConfigBytes), nullptr, false);
  if (!json.is_object()) throw io::Error(path + ": not a JSON object");
  return json;
}

// Other ones than a run leaves that is killed before it has a config.
bool has_other_files(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_own = name == kLock || name == kStandardInput || name == kStandardText || name == kSchema ||
                        name.find(".tmp-") != name.npos;
    if (!is_own) return true;
  }
  return false;
}

}  // namespace

FolderLock::FolderLock(std::string folder, bool resume, std::string description)
    : folder_(std::move(folder)), description_(std::move(description)), is_new_(!fs::exists(folder_)) {
  if (!resume && is_run(folder_, description_)) {
    throw io::Error(folder_ + ": there is a run already; go on with it by --resume, or choose another --out");
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw io::Error(folder_ + ": cannot make this folder: " + error.message());
  if (!is_run(folder_, description_) && has_other_files(folder_)) {
    throw io::Error(folder_ + ": there are other files in this folder; choose a new or an empty one for --out");
  }
  descriptor_ = open((folder_ + "/" + kLock).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw io::Error(folder_ + ": cannot write here: " + std::strerror(errno));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  if (fcntl(descriptor_, F_SETLK, &lock) != 0) {
    close(descriptor_);
    throw io::Error(folder_ + ": another run is writing here");
  }
  io::remove_leftovers_in(folder_);  // of a run that was killed, perhaps after all that is left to write
}

FolderLock::~FolderLock() {
  if (!is_run(folder_, description_)) {
    std::error_code ignored;
    for (const char* name : {kLock, kStandardInput, kStandardText}) fs::remove(folder_ + "/" + name, ignored);
    if (is_new_) fs::remove(folder_, ignored);  // only if it is empty
  }
  close(descriptor_);
}

bool is_run(const std::string& folder, const std::string& description) {
  return fs::exists(folder + "/" + description);
}

void check_same_settings(const nlohmann::json& before, const nlohmann::json& now) {
  const auto check = [](const std::string& key, const nlohmann::json& was, const nlohmann::json& is) {
    if (was == is) return;
    throw std::invalid_argument("--resume: " + key + " was " + was.dump() + ", not " + is.dump() +
                                "; a resumed run must have the same settings");
  };
  for (const auto& [part, values] : now.items()) {
    if (!values.is_object()) {
      check(part, before.at(part), values);
      continue;
    }
    for (const auto& [key, value] : values.items())
      check(part + "." + key, before.at(part).value(key, nlohmann::json()), value);
  }
}

std::string resume_threads(int began_with, int asked, at::Device device) {
  if (began_with <= 0) return "";
  if (asked == 0) at::set_num_threads(began_with);
  if (!device.is_cpu() || at::get_num_threads() == began_with) return "";
  return "the run began with " + std::to_string(began_with) + " threads; with " +
         std::to_string(at::get_num_threads()) + " it goes on, but not bit for bit";
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

namespace {

nlohmann::json to_json(const RunDescription& run) {
  nlohmann::json config = run.settings.to_json();
  config["ramify"] = RAMIFY_VERSION;
  config["command"] = run.command;
  config["seed"] = run.settings.training.seed;
  config["parameters"] = {
      {"encoder", run.parameters.encoder}, {"tables", run.parameters.tables}, {"total", run.parameters.total()}};
  config["records"] = {{"train", run.train_records}, {"valid", run.valid_records}};
  config["files"] = to_json(run.files);
  config["threads"] = run.threads;
  config["processes"] = run.processes;
  config["tokens"] = {{"width", run.tokens.width}, {"frozen", run.tokens.frozen}};
  config["task"] = signal::name_of(run.schema->target.task);
  config["target"] = run.schema->target.path;
  config["classes"] = run.schema->target.classes;
  return config;
}

// `file`, `schema_file`: what they are called in messages.
RunDescription description_from_json(const nlohmann::json& config, const std::string& file,
                                     const nlohmann::json& schema, const std::string& schema_file) {
  RunDescription run;
  try {
    run.settings = Settings::from_json({{"data", config.at("data")},
                                        {"attention", config.at("attention")},
                                        {"model", config.at("model")},
                                        {"architecture", config.value("architecture", nlohmann::json::object())},
                                        {"training", config.at("training")}});
    run.tokens = {.width = config.at("tokens").at("width"), .frozen = config.at("tokens").at("frozen")};
    run.parameters = {.encoder = config.at("parameters").at("encoder"), .tables = config.at("parameters").at("tables")};
    run.command = config.at("command");
    run.train_records = config.at("records").at("train");
    run.valid_records = config.at("records").at("valid");
    run.files = data_files_from_json(config.value("files", nlohmann::json::array()));
    run.threads = config.value("threads", 0);
    run.processes = config.value("processes", int64_t{1});
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(file + ": not the config of a run: " + io::json_reason(error.what()));
  } catch (const std::invalid_argument& error) {
    throw io::Error(file + ": " + error.what());
  }
  run.schema = std::make_shared<const signal::Schema>(signal::Schema::from_json(schema, schema_file));
  return run;
}

}  // namespace

void save_description(const std::string& folder, const RunDescription& run) {
  io::write_file_atomic(folder + "/" + kSchema, run.schema->to_json().dump() + "\n");
  io::write_file_atomic(folder + "/config.json", to_json(run).dump(2) + "\n");
}

RunDescription load_description(const std::string& folder) {
  const std::string file = folder + "/config.json", schema_file = folder + "/" + kSchema;
  if (!is_run(folder)) throw io::Error(folder + ": not the folder of a run: it has no config.json");
  const nlohmann::json config = read_json(file);
  if (config.contains("model_type")) {  // as Hugging Face writes it, and train-lm
    throw io::Error(folder +
                    ": is a language model or another published model; expected the folder of a run of ramify train");
  }
  return description_from_json(config, file, read_json(schema_file), schema_file);
}

void tell_description(const Replicas& replicas, RunDescription& run) {
  if (replicas.size() == 1) return;
  nlohmann::json told;
  if (replicas.is_first()) told = {{"config", to_json(run)}, {"schema", run.schema->to_json()}};
  told = nlohmann::json::parse(replicas.tell(told.dump()));
  if (!replicas.is_first()) run = description_from_json(told["config"], "the run", told["schema"], "the run's schema");
}

void check_processes(int64_t began_with, int64_t now) {
  if (began_with == now) return;
  throw std::invalid_argument("--resume: the run began with " + std::to_string(began_with) + " processes, not " +
                              std::to_string(now) + "; a resumed run must have as many");
}

std::shared_ptr<nn::Network> build_network(const RunDescription& run) {
  const Settings& settings = run.settings;
  std::shared_ptr<nn::Network> network;
  if (settings.architecture.is_used()) {
    network = settings.architecture.build(*run.schema, settings.attention == Mixing::exact, settings.training.seed);
  } else {
    network =
        build_model(*run.schema, settings.model, run.tokens, structure_of(settings.attention), settings.training.seed);
  }
  if (settings.training.dtype == "float64") {
    if (settings.architecture.is_used()) throw std::invalid_argument("--dtype float64 is not for --architecture");
    network->to(at::kDouble);
  } else {
    network->set_compute_dtype(settings.training.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
  }
  return network;
}

TrainedModel load_trained(const std::string& folder, at::Device device) {
  TrainedModel trained{.run = load_description(folder), .model = nullptr};
  if (!io::folder_exists(folder + "/model")) {
    throw io::Error(folder + ": no model yet: the run was stopped before its first epoch ended; go on with it by " +
                    "ramify train --resume --out " + folder);
  }
  trained.model = build_network(trained.run);
  load_model(folder + "/model", *trained.model);
  trained.model->to(device);
  trained.model->eval();
  return trained;
}

}  // namespace ramify::train
