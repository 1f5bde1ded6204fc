#include "train/language_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "models/language_loss.h"
#include "signal/loader.h"
#include "train/interrupt.h"

namespace ramify::train {
namespace {

int64_t sequences_in_batch(const Sequences& text, int64_t batch_tokens) {
  return text.size() == 0 ? 1 : std::max<int64_t>(1, batch_tokens / text.length(0));
}

}  // namespace

double LanguageScore::perplexity() const {
  return std::exp(loss());
}

nlohmann::json LanguageScore::to_json() const {
  nlohmann::json json = {{"loss", loss()},
                         {"perplexity", perplexity()},
                         {"tokens", tokens},
                         {"sequences", sequences},
                         {"seconds", seconds}};
  if (seconds > 0) json["tokens_per_second"] = static_cast<double>(tokens) / seconds;
  return json;
}

LanguageScore score_sequences(models::Decoder& model, const Sequences& text, const ScoreOptions& options) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  LanguageScore score;
  const auto start = std::chrono::steady_clock::now();
  std::vector<int64_t> all(static_cast<size_t>(text.size()));
  std::iota(all.begin(), all.end(), 0);
  const int64_t step = sequences_in_batch(text, options.batch_tokens);
  for (int64_t begin = 0; begin < text.size(); begin += step) {
    const auto some =
        std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(step, text.size() - begin)));
    const models::PackedTexts batch = text.pack(some, model.config().max_tokens(), options.device);
    const models::TextLoss loss = models::text_loss(model, batch, options.plan);
    score.sum += loss.sum.item<double>();
    score.tokens += loss.tokens;
    score.sequences += static_cast<int64_t>(some.size());
    const double share = static_cast<double>(score.sequences) / static_cast<double>(text.size());
    if (options.on_progress && !options.on_progress(share)) break;
  }
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  model.train(was_training);
  return score;
}

LanguageTask::LanguageTask(LanguageTaskParts parts)
    : parts_(std::move(parts)), per_batch_(sequences_in_batch(parts_.train, parts_.options.batch_leaves)) {}

int64_t LanguageTask::num_batches(int64_t /*epoch*/) const {
  return (parts_.train.size() + per_batch_ - 1) / per_batch_;
}

void LanguageTask::start(int64_t epoch, int64_t first_batch) {
  order_ = signal::shuffled(parts_.train.size(), parts_.options.seed, static_cast<uint64_t>(epoch));
  batch_ = first_batch - 1;
}

bool LanguageTask::advance() {
  return ++batch_ * per_batch_ < parts_.train.size();
}

TrainingTask::Step LanguageTask::forward() {
  const int64_t begin = batch_ * per_batch_, count = std::min(per_batch_, parts_.train.size() - begin);
  const auto sequences = std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  const models::PackedTexts batch = parts_.train.pack(sequences, parts_.model.config().max_tokens(), parts_.device);
  const models::TextLoss loss = models::text_loss(parts_.model, batch, parts_.plan);
  return {
      .loss = loss.sum / static_cast<double>(loss.tokens), .records = count, .leaves = batch.num_tokens(), .hits = {}};
}

std::optional<TrainingTask::Validation> LanguageTask::validate() {
  if (!parts_.valid) return Validation{};
  const LanguageScore score = score_sequences(parts_.model, *parts_.valid,
                                              {.plan = parts_.plan,
                                               .batch_tokens = parts_.options.batch_leaves,
                                               .device = parts_.device,
                                               .on_progress = [](double) { return InterruptGuard::caught() == 0; }});
  if (InterruptGuard::caught() != 0) return std::nullopt;
  return Validation{.loss = score.loss(), .quality = -score.loss(), .figures = {{"perplexity", score.perplexity()}}};
}

void LanguageTask::save_best(const std::string& folder) const {
  models::save_decoder(parts_.model, folder + "/model.safetensors");
}

void LanguageTask::complete(nlohmann::json& line) const {
  line["perplexity"] = std::exp(line["loss"].get<double>());
  line["sequences_per_second"] = line["records_per_second"];
  line["tokens_per_second"] = line["leaves_per_second"];
  line.erase("records_per_second");
  line.erase("leaves_per_second");
}

std::vector<std::string_view> LanguageTask::columns() const {
  return {"split",  "step", "epoch", "loss", "perplexity", "rate", "sequences_per_second", "tokens_per_second",
          "seconds"};
}

}  // namespace ramify::train
