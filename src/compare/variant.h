// A way to swap the attention of a model, as the command line writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/attention_plan.h"

namespace ramify::compare {

struct Variant {
  models::HierarchicalAttention attention;
  std::vector<int64_t> layers;
  int64_t start_layer = -1;  // of the ablation: every other layer from here on; -1: no part of it

  // HIERARCHY[:LAYERS[:TIE]], such as `2,4,8,16:7,9,11:none`; all layers and tie=block where nothing is said.
  // std::invalid_argument otherwise.
  static Variant parse(std::string_view text, int64_t num_layers);
  models::AttentionPlan plan(int64_t num_layers) const;
  std::string name(int64_t num_layers) const;  // as parse() reads it
};

// The paper's ablation: hierarchies (2,4,8,16), (2,2,2,2), (7,7,7,7), (8,4,2); from every layer on every other one.
std::vector<Variant> ablation(int64_t num_layers);

}  // namespace ramify::compare
