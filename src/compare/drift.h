// How far a swapped model has moved from the exact one, layer by layer.
#pragma once

#include <span>
#include <vector>

#include "models/text_model.h"

namespace ramify::compare {

struct LayerDrift {
  double output_error = 0;  // of what the layer gives: |swapped - exact| / |exact|
  double divergence = 0;    // of its attention: mean over rows and heads of KL(hierarchical || softmax), on the exact
                            // model's queries and keys; NaN: the layer has exact attention
};

// The exact model on some texts, and how others differ from it there.
class DriftReference {
 public:
  DriftReference(const models::TextModel& model, std::span<const models::TokenizedText* const> texts);
  std::vector<LayerDrift> drift(const models::AttentionPlan& plan) const;

 private:
  double divergence(size_t layer, const models::HierarchicalAttention& attention) const;

  const models::TextModel& model_;
  std::vector<models::PackedTexts> texts_;                // one a text: the whole matrix of attention is made for each
  std::vector<std::vector<models::Trace::Layer>> exact_;  // of each text
};

}  // namespace ramify::compare
