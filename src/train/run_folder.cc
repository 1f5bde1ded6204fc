#include "train/run_folder.h"

#include <filesystem>

#include "io/atomic_file.h"
#include "io/error.h"
#include "ramify/version.h"
#include "train/checkpoint.h"

namespace ramify::train {
namespace {

constexpr size_t kMaxConfigBytes = size_t{256} << 20;  // a schema has the whole vocabulary

nlohmann::json read_json(const std::string& path) {
  nlohmann::json json = nlohmann::json::parse(io::read_file(path, kMaxConfigBytes), nullptr, false);
  if (!json.is_object()) throw io::Error(path + ": not a JSON object");
  return json;
}

}  // namespace

void save_description(const std::string& folder, const RunDescription& run) {
  nlohmann::json config = run.settings.to_json();
  config["ramify"] = RAMIFY_VERSION;
  config["command"] = run.command;
  config["seed"] = run.settings.training.seed;
  config["parameters"] = {
      {"encoder", run.parameters.encoder}, {"tables", run.parameters.tables}, {"total", run.parameters.total()}};
  config["records"] = {{"train", run.train_records}, {"valid", run.valid_records}};
  config["tokens"] = {{"width", run.tokens.width}, {"frozen", run.tokens.frozen}};
  config["task"] = signal::name_of(run.schema->target.task);
  config["target"] = run.schema->target.path;
  config["classes"] = run.schema->target.classes;
  io::write_file_atomic(folder + "/schema.json", run.schema->to_json().dump() + "\n");
  io::write_file_atomic(folder + "/config.json", config.dump(2) + "\n");
}

RunDescription load_description(const std::string& folder) {
  const std::string file = folder + "/config.json";
  if (!std::filesystem::exists(file)) {
    throw io::Error(folder + ": not the folder of a run: it has no config.json");
  }
  const nlohmann::json config = read_json(file);
  const std::string schema_file = folder + "/schema.json";
  RunDescription run;
  try {
    run.settings = Settings::from_json({{"data", config.at("data")},
                                        {"attention", config.at("attention")},
                                        {"model", config.at("model")},
                                        {"training", config.at("training")}});
    run.tokens = {.width = config.at("tokens").at("width"), .frozen = config.at("tokens").at("frozen")};
    run.parameters = {.encoder = config.at("parameters").at("encoder"), .tables = config.at("parameters").at("tables")};
    run.command = config.at("command");
    run.train_records = config.at("records").at("train");
    run.valid_records = config.at("records").at("valid");
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(file + ": not the config of a run: " + error.what());
  } catch (const std::invalid_argument& error) {
    throw io::Error(file + ": " + error.what());
  }
  run.schema = std::make_shared<const signal::Schema>(signal::Schema::from_json(read_json(schema_file), schema_file));
  return run;
}

std::shared_ptr<nn::Model> build_model(const RunDescription& run) {
  auto model = build_model(*run.schema, run.settings.model, run.tokens, structure_of(run.settings.attention),
                           run.settings.training.seed);
  model->set_compute_dtype(run.settings.training.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
  return model;
}

TrainedModel load_trained(const std::string& folder, at::Device device) {
  TrainedModel trained{.run = load_description(folder), .model = nullptr};
  trained.model = build_model(trained.run);
  load_model(folder + "/model", *trained.model);
  trained.model->to(device);
  trained.model->eval();
  return trained;
}

}  // namespace ramify::train
