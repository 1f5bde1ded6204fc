// The parts that published transformers are built from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "models/attention_plan.h"
#include "models/config.h"
#include "models/exact_attention.h"
#include "models/packed_texts.h"
#include "ramify/nn/module.h"
#include "ramify/options.h"

namespace ramify::models {

// Rows with mean 0 and deviation 1, scaled and shifted.
class LayerNorm : public nn::Module {
 public:
  LayerNorm(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& rows) const;

 private:
  double epsilon_;
};

// Rows with mean square 1, scaled.
class RmsNorm : public nn::Module {
 public:
  RmsNorm(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& rows) const;

 private:
  double epsilon_;
};

// A vector an id.
class Table : public nn::Module {
 public:
  Table(int64_t rows, int64_t width);
  at::Tensor forward(const at::Tensor& ids) const;
  const at::Tensor& weight() const { return parameter("weight"); }
  void set_gradient(TableGradient gradient) { gradient_ = gradient; }
  bool has_row_gradient() const;

 private:
  TableGradient gradient_ = TableGradient::dense;
};

at::Tensor activate(const at::Tensor& rows, Activation activation);

// What to look at while a network runs.
struct Trace {
  bool keep_layers = false;  // fill `layers`
  struct Layer {
    at::Tensor q, k;  // [T, H, d], what attention got
    at::Tensor rows;  // [T, width], what the layer gave
  };
  std::vector<Layer> layers;
  bool time_attention = false;
  double attention_seconds = 0;
};

struct AttentionInput {
  const PackedTexts& texts;
  const std::optional<HierarchicalAttention>& choice;  // none: exact
  Mask mask = Mask::none;
  double dropout = 0;  // of exact weights
};

// q [T, H, d], k, v [T, Hkv, d] -> [T, H·d], with the time it took added to the trace.
at::Tensor mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionInput& input,
               Trace* trace);

// Draws all weights and tables of `module` from a normal distribution; biases are 0, norms 1.
void initialize(torch::nn::Module& module, double deviation);

}  // namespace ramify::models
