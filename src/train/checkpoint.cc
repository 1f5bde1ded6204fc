#include "train/checkpoint.h"

#include "io/atomic_file.h"
#include "io/folder.h"

namespace ramify::train {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

}  // namespace

nlohmann::json TrainingState::to_json() const {
  return {{"step", step},
          {"epoch", epoch},
          {"batch", batch},
          {"best_quality", best_quality},
          {"best_epoch", best_epoch},
          {"finished", finished},
          {"seconds", seconds},
          {"loss_sum", loss_sum},
          {"loss_count", loss_count},
          {"rows", rows},
          {"right", right}};
}

TrainingState TrainingState::from_json(const nlohmann::json& json) {
  return {.step = json.at("step"),
          .epoch = json.at("epoch"),
          .batch = json.at("batch"),
          .best_quality = json.at("best_quality"),
          .best_epoch = json.at("best_epoch"),
          .finished = json.at("finished"),
          .seconds = json.at("seconds"),
          .loss_sum = json.at("loss_sum"),
          .loss_count = json.at("loss_count"),
          .rows = json.at("rows"),
          .right = json.at("right")};
}

NamedTensors model_tensors(const nn::Model& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void save_checkpoint(const std::string& folder, const nn::Model& model, const AdamW& optimizer,
                     const TrainingState& state) {
  io::FolderWriter writer(folder);
  save_tensors(writer.path(kModelFile), model_tensors(model));
  save_tensors(writer.path(kOptimizerFile), optimizer.state());
  writer.write(kStateFile, state.to_json().dump(2) + "\n");
  writer.commit();
}

TrainingState load_checkpoint(const std::string& folder, nn::Model& model, AdamW& optimizer) {
  const std::string whole = io::open_folder(folder);
  load_tensors_into(whole + "/" + kModelFile, model_tensors(model));
  load_tensors_into(whole + "/" + kOptimizerFile, optimizer.state());
  const std::string file = whole + "/" + kStateFile;
  try {
    return TrainingState::from_json(nlohmann::json::parse(io::read_file(file, 1 << 20)));
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(file + ": not the state of a training run: " + error.what());
  }
}

void save_model(const std::string& folder, const nn::Model& model) {
  io::FolderWriter writer(folder);
  save_tensors(writer.path(kModelFile), model_tensors(model));
  writer.commit();
}

void load_model(const std::string& folder, nn::Model& model) {
  load_tensors_into(io::open_folder(folder) + "/" + kModelFile, model_tensors(model));
}

}  // namespace ramify::train
