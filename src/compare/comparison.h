// Exact attention against swapped ones, on a task: a logistic head is fitted on the exact model's vectors, then every
// variant is scored with that head.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compare/drift.h"
#include "compare/variant.h"
#include "models/text_embedder.h"

namespace ramify::compare {

struct LabelledTexts {
  std::vector<models::TokenizedText> texts;
  std::vector<std::string> labels;
};

struct CompareOptions {
  models::Pooling pooling = models::Pooling::mean;
  int64_t batch_tokens = 8192;
  int64_t folds = 5;         // of the cross-validation, where there is no test part
  int64_t drift_texts = 16;  // whose layers are compared
  std::function<bool(const std::string& what, double share)> on_progress;  // false: stop
};

struct Scores {
  double accuracy = 0, precision = 0, recall = 0, f1 = 0;  // the last three: means over classes
};

struct VariantResult {
  std::string name, hierarchy, layers, tie;  // "exact" and ""s for the exact model
  int64_t start_layer = -1;
  Scores scores;
  double agreement = 1;  // of its predictions with those of the exact model
  double cosine = 1;     // mean of that of its vectors with the exact ones
  std::vector<LayerDrift> drift;
  double paper_flops = 0, multiply_adds = 0;  // of the attention of all layers, for all scored texts
  double attention_seconds = 0, seconds = 0;  // for all scored texts

  nlohmann::json to_json() const;
};

struct Comparison {
  std::vector<VariantResult> results;                                           // the exact model first
  int64_t train_texts = 0, test_texts = 0, tokens = 0, classes = 0, folds = 0;  // folds 0: there was a test part
  nlohmann::json to_json() const;
};

// `test` without texts: cross-validation over `train`. std::invalid_argument for labels with which that cannot be done.
// Stopped: results has fewer than asked for.
Comparison compare(const models::TextModel& model, const LabelledTexts& train, const LabelledTexts& test,
                   const std::vector<Variant>& variants, const CompareOptions& options);

}  // namespace ramify::compare
