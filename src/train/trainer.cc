#include "train/trainer.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <stdexcept>

#include "io/error.h"
#include "io/folder.h"
#include "train/interrupt.h"
#include "train/schedule.h"

namespace ramify::train {
namespace {

constexpr int64_t kBucketBytes = int64_t{512} << 10;  // of gradients: small enough that most go while backward does
constexpr size_t kUnreadSteps = 8;                    // between two looks at the numbers

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A seed of its own for every step and process (splitmix64), so that dropout does not depend on where a run was
// interrupted.
uint64_t step_seed(uint64_t seed, int64_t step, int64_t rank) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(step + 1) * 0xbf58476d1ce4e5b9ULL +
               static_cast<uint64_t>(rank) * 0xd6e8feb86659fd93ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::vector<at::Tensor> tensors_of(const models::NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

Trainer::Trainer(TrainerParts parts)
    : parts_(std::move(parts)),
      task_(parts_.task),
      options_(parts_.options),
      optimizer_(model_tensors(task_.model()), {.weight_decay = options_.weight_decay}) {
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) total_steps_ += task_.num_batches(epoch);
  warmup_steps_ = std::llround(options_.warmup * static_cast<double>(total_steps_));
  if (ProcessGroup* group = parts_.replicas.group()) {
    exchange_.emplace(*group, task_.model().parameters(), task_.row_tables(), kBucketBytes);
  }
}

void Trainer::resume() {
  parts_.replicas.on_first([&] {
    if (!io::folder_exists(checkpoint_folder())) return;
    state_ = load_checkpoint(checkpoint_folder(), task_.model(), optimizer_);
  });
}

void Trainer::begin_alike() {
  const Replicas& replicas = parts_.replicas;
  if (replicas.size() == 1) return;
  state_ = nlohmann::json::parse(replicas.tell(nlohmann::json(state_).dump())).get<TrainingState>();
  replicas.copy_from_first(tensors_of(model_tensors(task_.model())));
  replicas.copy_from_first(tensors_of(optimizer_.state()));
}

Outcome Trainer::run() {
  begin_alike();
  started_ = now() - state_.seconds;
  parts_.replicas.on_first([&] { log_.emplace(parts_.folder, task_.columns(), state_.step > 0 ? state_.step : -1); });
  while (!state_.finished) {
    if (!run_epoch() || !validate()) {
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

bool Trainer::run_epoch() {
  task_.model().train();
  task_.start(state_.epoch, state_.batch);
  batches_in_epoch_ = task_.num_batches(state_.epoch);
  speed_started_ = now();
  speed_records_ = speed_leaves_ = speed_steps_ = 0;
  while (task_.advance()) {
    step();
    ++state_.batch;
    ++state_.step;
    ++speed_steps_;
    report_step();
    if (!exchange_) stop_ = InterruptGuard::caught() != 0;
    if (stop_ || (state_.step % options_.checkpoint_every == 0 && state_.batch < batches_in_epoch_)) {
      read_done_steps();
      if (stop_) return false;
      checkpoint();
    }
  }
  task_.finish_epoch();
  read_done_steps();
  return true;
}

void Trainer::step() {
  at::manual_seed(step_seed(options_.seed, state_.step, parts_.replicas.rank()));
  optimizer_.clear_gradients();
  TrainingTask::Step done = task_.forward();
  if (exchange_) {
    stop_ = exchange_->backward({.loss = done.loss, .weight = done.weight, .stop = InterruptGuard::caught() != 0});
  } else {
    done.loss.backward();
  }
  optimizer_.clip_gradients(options_.clip);
  optimizer_.step(options_.rate * schedule_factor(state_.step, warmup_steps_, total_steps_));
  if (done.loss.defined()) done.loss = done.loss.detach();
  done_.push_back(std::move(done));
}

void Trainer::require_finite(double loss) const {
  if (std::isfinite(loss)) return;
  throw io::Error("the loss is not finite any more near step " + std::to_string(state_.step) +
                  "; use a lower --rate, or look at the numbers in the data");
}

void Trainer::read_done_steps() {
  std::vector<double> losses, weights, counts(4, 0);
  for (const TrainingTask::Step& done : done_) {
    losses.push_back(done.loss.defined() ? done.loss.item<double>() : 0);
    weights.push_back(done.loss.defined() ? done.weight : 0);
    const TrainingTask::Hits hits = done.hits ? done.hits() : TrainingTask::Hits{};
    counts[0] += static_cast<double>(done.records);
    counts[1] += static_cast<double>(done.leaves);
    counts[2] += static_cast<double>(hits.rows);
    counts[3] += static_cast<double>(hits.right);
  }
  if (parts_.replicas.size() > 1) {
    for (size_t i = 0; i < losses.size(); ++i) losses[i] *= weights[i];
    for (std::vector<double>* sums : {&losses, &weights, &counts}) parts_.replicas.add_up(*sums);
    for (size_t i = 0; i < losses.size(); ++i) losses[i] /= std::max(1.0, weights[i]);
  }
  for (const double value : losses) {
    require_finite(value);
    state_.loss_sum += value;
    ++state_.loss_count;
  }
  speed_records_ += static_cast<int64_t>(counts[0]);
  speed_leaves_ += static_cast<int64_t>(counts[1]);
  state_.rows += static_cast<int64_t>(counts[2]);
  state_.right += static_cast<int64_t>(counts[3]);
  done_.clear();
}

void Trainer::report_step() {
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
  task_.complete(line);
  if (log_) log_->add(line);
  state_.loss_sum = 0;
  state_.loss_count = state_.rows = state_.right = 0;
}

bool Trainer::validate() {
  const auto validation = task_.validate();
  if (!validation) return false;
  require_finite(validation->loss);
  const bool best = state_.best_epoch < 0 || validation->quality > state_.best_quality || !task_.has_validation();
  if (best) {
    parts_.replicas.on_first([&] { task_.save_best(parts_.folder); });
    state_.best_quality = validation->quality;
    state_.best_epoch = state_.epoch;
  }
  if (!task_.has_validation()) return true;
  nlohmann::json line = validation->figures;
  line["loss"] = validation->loss;
  parts_.observer.on_validation(state_.epoch + 1, line, best);
  line["split"] = "valid";
  line["step"] = state_.step;
  line["epoch"] = state_.epoch + 1;
  line["seconds"] = seconds();
  if (log_) log_->add(line);
  return true;
}

// The last step may have broken what its own loss does not show yet: better no checkpoint than that one.
void Trainer::checkpoint() {
  for (const at::Tensor& parameter : task_.model().parameters()) {
    require_finite(parameter.detach().abs().max().item<double>());
  }
  if (!parts_.replicas.are_alike(tensors_of(model_tensors(task_.model())))) {
    throw io::Error("the processes have come to different weights before step " + std::to_string(state_.step) +
                    "; the last checkpoint is from before that. Have all of them the same machine and the same torch?");
  }
  state_.seconds = seconds();
  parts_.replicas.on_first([&] { save_checkpoint(checkpoint_folder(), task_.model(), optimizer_, state_); });
}

bool Trainer::patience_is_over() const {
  return options_.patience > 0 && state_.epoch - 1 - state_.best_epoch >= options_.patience;
}

double Trainer::seconds() const {
  return now() - started_;
}

}  // namespace ramify::train
