#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <stdexcept>

#include "io/error.h"
#include "io/folder.h"
#include "train/feeder.h"
#include "train/interrupt.h"
#include "train/schedule.h"

namespace ramify::train {
namespace {

constexpr size_t kUnreadSteps = 8;  // between two looks at the numbers

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A seed of its own for every step (splitmix64), so that dropout does not depend on where a run was interrupted.
uint64_t step_seed(uint64_t seed, int64_t step) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(step + 1) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

signal::LoaderOptions training_loader(const Settings& settings, int workers) {
  return {.batch_records = settings.training.batch_records,
          .batch_leaves = settings.training.batch_leaves,
          .order = signal::Order::shuffled,
          .seed = settings.training.seed,
          .structure = structure_of(settings.attention),
          .graph_signs = signal::GraphSigns::flipped,
          .threads = workers};
}

bool has_classes(const signal::Target& target) {
  return target.task == signal::Task::classification || target.task == signal::Task::nodes;
}

}  // namespace

Trainer::Trainer(TrainerParts parts)
    : parts_(std::move(parts)),
      options_(parts_.settings.training),
      target_(parts_.train.schema()->target),
      optimizer_(model_tensors(parts_.model), {.weight_decay = options_.weight_decay}),
      loader_(parts_.train, parts_.train_records, training_loader(parts_.settings, parts_.workers)) {
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    total_steps_ += static_cast<int64_t>(loader_.batches(epoch).size());
  }
  parts_.model.set_table_gradient(TableGradient::rows);
  warmup_steps_ = std::llround(options_.warmup * static_cast<double>(total_steps_));
}

void Trainer::resume() {
  if (!io::folder_exists(checkpoint_folder())) return;
  state_ = load_checkpoint(checkpoint_folder(), parts_.model, optimizer_);
}

Outcome Trainer::run() {
  started_ = now() - state_.seconds;
  MetricsLog log(parts_.folder, state_.step > 0 ? state_.step : -1);
  while (!state_.finished) {
    if (!run_epoch(log) || !validate(log)) {
      checkpoint();
      return Outcome::interrupted;
    }
    ++state_.epoch;
    state_.batch = 0;
    state_.finished = state_.epoch == options_.epochs || patience_is_over();
    checkpoint();
  }
  return state_.epoch < options_.epochs ? Outcome::stopped_early : Outcome::finished;
}

bool Trainer::run_epoch(MetricsLog& log) {
  parts_.model.train();
  Feeder feeder(loader_, parts_.model, parts_.device);
  feeder.start(state_.epoch, state_.batch);
  batches_in_epoch_ = loader_.num_batches();
  speed_started_ = now();
  speed_records_ = speed_leaves_ = speed_steps_ = 0;
  while (const auto batch = feeder.next()) {
    step(*batch);
    ++state_.batch;
    ++state_.step;
    speed_records_ += static_cast<int64_t>(batch->source->records.size());
    speed_leaves_ += batch->source->num_leaves();
    ++speed_steps_;
    report_step(log);
    const bool interrupted = InterruptGuard::caught() != 0;
    if (interrupted || (state_.step % options_.checkpoint_every == 0 && state_.batch < batches_in_epoch_)) {
      read_done_steps();
      if (interrupted) return false;
      checkpoint();
    }
  }
  read_done_steps();
  return true;
}

void Trainer::step(const BatchTensors& batch) {
  at::manual_seed(step_seed(options_.seed, state_.step));
  optimizer_.clear_gradients();
  const at::Tensor outputs = parts_.model.forward(batch.input, batch.targets.leaf_begin, batch.targets.leaf_end);
  const at::Tensor value = loss(outputs, batch.targets, target_, options_.label_smoothing);
  value.backward();
  optimizer_.clip_gradients(options_.clip);
  optimizer_.step(options_.rate * schedule_factor(state_.step, warmup_steps_, total_steps_));
  done_.push_back({value.detach(), has_classes(target_) ? outputs.detach() : at::Tensor(), batch.source});
}

void Trainer::require_finite(double loss) const {
  if (std::isfinite(loss)) return;
  throw io::Error("the loss is not finite any more near step " + std::to_string(state_.step) +
                  "; use a lower --rate, or look at the numbers in the data");
}

void Trainer::read_done_steps() {
  for (const Done& done : done_) {
    const auto value = done.loss.item<double>();
    require_finite(value);
    state_.loss_sum += value;
    ++state_.loss_count;
    if (!done.outputs.defined()) continue;
    const at::Tensor best = done.outputs.argmax(1).to(at::kCPU);
    const std::vector<int64_t>& classes = done.batch->targets.classes;
    for (size_t i = 0; i < classes.size(); ++i) {
      state_.rows += classes[i] >= 0;
      state_.right += best.const_data_ptr<int64_t>()[i] == classes[i];
    }
  }
  done_.clear();
}

void Trainer::report_step(MetricsLog& log) {
  const bool line_is_due = state_.step % options_.log_every == 0 || state_.batch == batches_in_epoch_;
  if (done_.size() < kUnreadSteps && !line_is_due) return;
  read_done_steps();
  const double elapsed = now() - speed_started_;
  const Progress progress{.epoch = state_.epoch + 1,
                          .epochs = options_.epochs,
                          .step = state_.step,
                          .steps = total_steps_,
                          .loss = state_.loss_sum / static_cast<double>(state_.loss_count),
                          .accuracy = state_.rows > 0 ? static_cast<double>(state_.right) / state_.rows : -1,
                          .records_per_second = speed_records_ / elapsed,
                          .leaves_per_second = speed_leaves_ / elapsed,
                          .seconds_left = elapsed / speed_steps_ * (total_steps_ - state_.step)};
  parts_.observer.on_step(progress);
  if (!line_is_due) return;
  nlohmann::json line = {{"split", "train"},
                         {"step", state_.step},
                         {"epoch", state_.epoch + static_cast<double>(state_.batch) / batches_in_epoch_},
                         {"loss", progress.loss},
                         {"rate", options_.rate * schedule_factor(state_.step - 1, warmup_steps_, total_steps_)},
                         {"records_per_second", progress.records_per_second},
                         {"leaves_per_second", progress.leaves_per_second},
                         {"seconds", seconds()}};
  if (progress.accuracy >= 0) line["accuracy"] = progress.accuracy;
  log.add(line);
  state_.loss_sum = 0;
  state_.loss_count = state_.rows = state_.right = 0;
}

bool Trainer::validate(MetricsLog& log) {
  EvaluationOptions options = evaluation_options(parts_.settings, parts_.device, parts_.workers);
  options.on_progress = [](int64_t) { return InterruptGuard::caught() == 0; };
  const Evaluation evaluation = evaluate(parts_.model, parts_.valid, parts_.valid_records, options);
  if (InterruptGuard::caught() != 0) return false;
  require_finite(evaluation.loss);
  const double quality = evaluation.scores.quality();
  // without records to validate with the last epoch is the best
  const bool best = state_.best_epoch < 0 || quality > state_.best_quality || parts_.valid_records.empty();
  if (best) {
    save_model(parts_.folder + "/model", parts_.model);
    state_.best_quality = quality;
    state_.best_epoch = state_.epoch;
  }
  if (parts_.valid_records.empty()) return true;
  nlohmann::json line = evaluation.scores.figures();
  line["loss"] = evaluation.loss;
  parts_.observer.on_validation(state_.epoch + 1, line, best);
  line["split"] = "valid";
  line["step"] = state_.step;
  line["epoch"] = state_.epoch + 1;
  line["seconds"] = seconds();
  log.add(line);
  return true;
}

// The last step may have broken what its own loss does not show yet: better no checkpoint than that one.
void Trainer::checkpoint() {
  for (const at::Tensor& parameter : parts_.model.parameters()) {
    require_finite(parameter.detach().abs().max().item<double>());
  }
  state_.seconds = seconds();
  save_checkpoint(checkpoint_folder(), parts_.model, optimizer_, state_);
}

bool Trainer::patience_is_over() const {
  return options_.patience > 0 && state_.epoch - 1 - state_.best_epoch >= options_.patience;
}

double Trainer::seconds() const {
  return now() - started_;
}

}  // namespace ramify::train
