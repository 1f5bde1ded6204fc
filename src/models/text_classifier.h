// A transformer for texts and pairs of texts, trained like any other model on records: the leaves of a record are its
// tokens, special tokens are put around them here, and its tree is not looked at.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/attention_plan.h"
#include "models/encoder.h"
#include "ramify/nn/network.h"
#include "text/model_tokenizer.h"

namespace ramify::models {

// Special tokens around one text or two.
struct TextFrame {
  std::vector<int64_t> before, between, after;
  int64_t second_type = 0;  // of the tokens of the second text, and behind it

  static TextFrame of(const text::SpecialTokens& special, bool pair);
};

struct TextClassifierParts {
  ModelConfig config;
  AttentionPlan plan;
  TextFrame frame;
  bool pair = false;       // a record has two texts: the children of its root
  int64_t second_key = 0;  // that of the second one, among the keys of the batches
  int64_t num_keys = 0;
  int64_t token_modality = 0;  // among those of the batches; leaves of others count as `unknown`
  int64_t unknown = 0;         // a token
  int64_t outputs = 0;
  double dropout = 0.1;  // of the head
};

class TextClassifier : public nn::Network {
 public:
  explicit TextClassifier(TextClassifierParts parts);

  // A range of leaves is represented by their mean, then a layer with tanh, as RoBERTa's head has it.
  at::Tensor forward(const nn::Batch& batch, const at::Tensor& leaf_begin, const at::Tensor& leaf_end) const override;
  const nn::ModelInputs& inputs() const override { return inputs_; }
  at::Tensor leaf_mass(const nn::Batch&) const override { return {}; }
  nn::ParameterCounts parameter_counts() const override;
  void set_compute_dtype(at::ScalarType dtype) override;  // float32 only: std::invalid_argument
  void set_table_gradient(TableGradient gradient) override;
  std::vector<at::Tensor> row_tables() const override;

  // Takes the weights of a published folder.
  void load(const std::string& folder);

 private:
  struct Framed;  // the batch with its special tokens
  Framed framed(const nn::Batch& batch) const;

  TextClassifierParts parts_;
  nn::ModelInputs inputs_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<nn::Linear> hidden_, output_;
};

}  // namespace ramify::models
