// Everything that decides what a language model learns: texts, attention, size, training. It is stored with the run,
// and a resumed run must have the same (as settings.h has it for records).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/attention_plan.h"
#include "models/config.h"
#include "train/training_options.h"

namespace ramify::train {

struct LanguageData {
  std::vector<std::string> train, valid, test;  // files
  double valid_fraction = 0.1;                  // of the training text, from its end, if `valid` is empty
  std::string tokenizer;                        // folder or file
  std::string field = "text";                   // of the records in .jsonl files
  int64_t context = 512;                        // tokens of a sequence
  int64_t limit = 0;                            // tokens of `train` that are taken; 0: all
};

struct LanguageAttention {
  std::string kind = "hierarchical";  // or exact
  std::string hierarchy = "16*";
  std::string tie = "none";
  int64_t window = 0;

  std::optional<models::HierarchicalAttention> choice() const;  // of every layer; none: exact
};

struct LanguageModelSize {
  int64_t layers = 4;
  int64_t width = 256;
  int64_t heads = 4;
  int64_t key_heads = 0;    // 0: as many as heads
  int64_t inner_width = 0;  // 0: 8/3 of the width, rounded up to a multiple of 16
  double rope_theta = 10000;
};

struct LanguageSettings {
  LanguageData data;
  LanguageAttention attention;
  LanguageModelSize model;
  TrainingOptions training;  // its leaves are tokens

  LanguageSettings();

  // {"data": {...}, "attention": {...}, "model": {...}, "training": {...}}; what is not said has its default.
  // std::invalid_argument names the option that cannot be.
  static LanguageSettings from_json(const nlohmann::json& json);
  nlohmann::json to_json() const;

  void make_paths_absolute();  // "-" stays
  models::ModelConfig model_config(int64_t vocabulary) const;
  models::AttentionPlan plan() const;
};

// A file with any of the parts "attention", "model" and "training".
nlohmann::json read_language_config(const std::string& file);

}  // namespace ramify::train
