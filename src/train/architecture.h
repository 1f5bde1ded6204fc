// A transformer for texts instead of the encoder for nested data: which one, how large, and its attention.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/text_classifier.h"
#include "signal/schema.h"

namespace ramify::train {

struct Architecture {
  std::string name;  // "": none; bert or roberta: random weights; else the folder of a published model to begin with
  // of random ones
  int64_t width = 256, layers = 4, heads = 4, inner_width = 1024, positions = 512;
  double dropout = 0.1;
  // of those layers that are swapped, where attention is hierarchical
  std::string hierarchy = "16,8,4,2", swapped = "all", tie = "block";
  bool include_self = true;
  // found out when a run begins, so that it needs the folder never again
  nlohmann::json config;
  std::vector<int64_t> before, between, after;
  int64_t second_type = 0;
  bool pair = false;
  std::string second;  // field of the second text of a pair

  bool is_used() const { return !name.empty(); }
  bool is_folder() const { return is_used() && name != "bert" && name != "roberta"; }

  static Architecture from_json(const nlohmann::json& json);  // std::invalid_argument names the key
  nlohmann::json to_json() const;

  // Fills in what a folder or the schema says. std::invalid_argument: the records are no texts or pairs of texts.
  void resolve(const signal::Schema& schema);
  int64_t max_leaves() const;  // of a record, so that it fits with its special tokens

  // `exact`: no layer is swapped.
  std::shared_ptr<models::TextClassifier> build(const signal::Schema& schema, bool exact, uint64_t seed) const;
};

}  // namespace ramify::train
