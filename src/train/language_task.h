// Learning to foretell the next token of running text.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "train/replicas.h"
#include "train/task.h"
#include "train/token_text.h"
#include "train/training_options.h"

namespace ramify::train {

// How well a model foretells a text: every token but the first of each sequence.
struct LanguageScore {
  double sum = 0;  // of the negative log likelihoods, in nats
  int64_t tokens = 0, sequences = 0;
  double seconds = 0;
  bool was_stopped = false;  // before the end, by any process

  double loss() const { return tokens > 0 ? sum / static_cast<double>(tokens) : 0; }
  double perplexity() const;
  nlohmann::json to_json() const;
};

struct ScoreOptions {
  models::AttentionPlan plan;
  int64_t batch_tokens = 8192;
  at::Device device = at::kCPU;
  std::function<bool(double share)> on_progress;  // false: stop
  Replicas replicas;                              // that share the work; all get the same result
};
LanguageScore score_sequences(models::Decoder& model, const Sequences& text, const ScoreOptions& options);

struct LanguageTaskParts {
  models::Decoder& model;
  models::AttentionPlan plan;
  const Sequences& train;
  const Sequences* valid = nullptr;  // none: no validation
  const TrainingOptions& options;
  at::Device device = at::kCPU;
  const Replicas& replicas;
};

class LanguageTask final : public TrainingTask {
 public:
  explicit LanguageTask(LanguageTaskParts parts);  // what it refers to must outlive it

  nn::Module& model() override { return parts_.model; }
  int64_t num_batches(int64_t epoch) const override;
  void start(int64_t epoch, int64_t first_batch) override;
  bool advance() override;
  Step forward() override;
  bool has_validation() const override { return parts_.valid != nullptr; }
  std::optional<Validation> validate() override;
  void save_best(const std::string& folder) const override;
  void complete(nlohmann::json& line) const override;
  std::vector<std::string_view> columns() const override;

 private:
  LanguageTaskParts parts_;
  int64_t per_batch_ = 1;       // sequences, of all processes
  std::vector<int64_t> order_;  // of the sequences in this epoch
  int64_t batch_ = -1;
};

}  // namespace ramify::train
