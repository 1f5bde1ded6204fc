// Everything that decides what a run learns: data, model, training. It is stored with the run, and a resumed run must
// have the same. What only decides how it is computed (device, threads) is not part of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ramify/nn/config.h"
#include "signal/batch.h"
#include "signal/schema_settings.h"
#include "train/architecture.h"
#include "train/training_options.h"

namespace ramify::train {

enum class Mixing {
  hierarchical,
  flat,   // one family of all leaves: softmax attention
  none,   // leaves do not see each other
  exact,  // of an architecture: as it was published
};
Mixing mixing_of(std::string_view name);  // std::invalid_argument with the names
std::string_view name_of(Mixing mixing);
signal::Structure structure_of(Mixing mixing);

// So that a run can be gone on with from anywhere. "" and "-" stay.
std::string absolute_path(const std::string& path);

struct DataSettings : signal::SchemaSettings {
  std::vector<std::string> train, valid, test;  // files
  double valid_fraction = 0.1;                  // of the training records, if `valid` is empty
  std::string word_vectors;
  bool train_vectors = false;
  std::string leaf_encoder;  // a folder: leaves of texts come from this model
  std::string leaf_level;    // what of it a leaf is; "": none was said

  // std::invalid_argument if what is said about vectors of texts does not go together; a level that was not said
  // becomes `sentence`.
  void settle_leaves();
};

struct Settings {
  DataSettings data;
  Mixing attention = Mixing::hierarchical;
  nn::EncoderConfig model;
  Architecture architecture;  // instead of `model`, where it is used
  TrainingOptions training;

  // {"data": {...}, "attention": "...", "model": {...}, "architecture": {...}, "training": {...}}; what is not said has
  // its default. Throws std::invalid_argument that names the key.
  static Settings from_json(const nlohmann::json& json);
  nlohmann::json to_json() const;

  // So that a run can be gone on with from anywhere. "-" stays.
  void make_paths_absolute();
};

// A config by its name (`default`, `paper-language`, …) or file: the "model" and "training" parts of settings.
// std::invalid_argument with the known names.
nlohmann::json read_config(const std::string& name_or_file);
std::vector<std::string> config_names();

}  // namespace ramify::train
