#include "train/language_task.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "models/language_loss.h"
#include "signal/loader.h"
#include "signal/shares.h"
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
  const Replicas& replicas = options.replicas;
  const int64_t step = sequences_in_batch(text, options.batch_tokens);
  for (int64_t begin = 0; begin < text.size() && !score.was_stopped; begin += step * replicas.size()) {
    // of each process three numbers
    std::vector<double> numbers(static_cast<size_t>(3 * replicas.size()), 0);
    const int64_t own = begin + step * replicas.rank(), count = std::min(step, text.size() - own);
    if (count > 0) {
      const auto some = std::span(all).subspan(static_cast<size_t>(own), static_cast<size_t>(count));
      const models::PackedTexts batch = text.pack(some, model.config().max_tokens(), options.device);
      const models::TextLoss loss = models::text_loss(model, batch, options.plan);
      double* const place = numbers.data() + 3 * replicas.rank();
      place[0] = loss.sum.item<double>();
      place[1] = static_cast<double>(loss.tokens);
      place[2] = static_cast<double>(count);
    }
    replicas.add_up(numbers);
    for (size_t r = 0; r < numbers.size(); r += 3) {
      score.sum += numbers[r];
      score.tokens += static_cast<int64_t>(numbers[r + 1]);
      score.sequences += static_cast<int64_t>(numbers[r + 2]);
    }
    const double share = static_cast<double>(score.sequences) / static_cast<double>(text.size());
    const bool goes_on = !options.on_progress || options.on_progress(share);
    score.was_stopped = replicas.any(!goes_on);
  }
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  model.train(was_training);
  return score;
}

LanguageTask::LanguageTask(LanguageTaskParts parts)
    : parts_(std::move(parts)),
      per_batch_(sequences_in_batch(parts_.train, parts_.options.batch_leaves) * parts_.replicas.size()) {}

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
  const auto all = std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  std::vector<int64_t> lengths, sequences;
  for (const int64_t sequence : all) lengths.push_back(parts_.train.length(sequence));
  for (const int64_t place : signal::balanced_share(lengths, parts_.replicas.rank(), parts_.replicas.size())) {
    sequences.push_back(all[static_cast<size_t>(place)]);
  }
  if (sequences.empty()) return {.loss = {}, .weight = 0, .hits = {}};
  const models::PackedTexts batch = parts_.train.pack(sequences, parts_.model.config().max_tokens(), parts_.device);
  const models::TextLoss loss = models::text_loss(parts_.model, batch, parts_.plan);
  return {.loss = loss.sum / static_cast<double>(loss.tokens),
          .weight = static_cast<double>(loss.tokens),
          .records = static_cast<int64_t>(sequences.size()),
          .leaves = batch.num_tokens(),
          .hits = {}};
}

std::optional<TrainingTask::Validation> LanguageTask::validate() {
  if (!parts_.valid) return Validation{};
  const LanguageScore score = score_sequences(parts_.model, *parts_.valid,
                                              {.plan = parts_.plan,
                                               .batch_tokens = parts_.options.batch_leaves,
                                               .device = parts_.device,
                                               .on_progress = [](double) { return InterruptGuard::caught() == 0; },
                                               .replicas = parts_.replicas});
  if (score.was_stopped) return std::nullopt;
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
