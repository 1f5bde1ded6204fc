#include "train/checkpoint.h"

#include "io/atomic_file.h"
#include "io/folder.h"

namespace ramify::train {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

}  // namespace

models::NamedTensors model_tensors(const nn::Module& model) {
  models::NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void save_checkpoint(const std::string& folder, const nn::Module& model, const AdamW& optimizer,
                     const TrainingState& state) {
  io::FolderWriter writer(folder);
  models::save_tensors(writer.path(kModelFile), model_tensors(model));
  models::save_tensors(writer.path(kOptimizerFile), optimizer.state());
  writer.write(kStateFile, nlohmann::json(state).dump(2) + "\n");
  writer.commit();
}

TrainingState load_checkpoint(const std::string& folder, nn::Module& model, AdamW& optimizer) {
  const std::string whole = io::open_folder(folder);
  models::load_tensors_into(whole + "/" + kModelFile, model_tensors(model));
  models::load_tensors_into(whole + "/" + kOptimizerFile, optimizer.state());
  const std::string file = whole + "/" + kStateFile;
  try {
    return nlohmann::json::parse(io::read_file(file, 1 << 20)).get<TrainingState>();
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(file + ": not the state of a training run: " + io::json_reason(error.what()));
  }
}

void save_model(const std::string& folder, const nn::Module& model) {
  io::FolderWriter writer(folder);
  models::save_tensors(writer.path(kModelFile), model_tensors(model));
  writer.commit();
}

void load_model(const std::string& folder, nn::Module& model) {
  models::load_tensors_into(io::open_folder(folder) + "/" + kModelFile, model_tensors(model));
}

}  // namespace ramify::train
