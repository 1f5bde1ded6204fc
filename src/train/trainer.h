// The training loop, the same for every task: steps, validation after each epoch, checkpoints, early stopping. Every
// step depends on the settings, the data and the step's number alone, so a run that was stopped anywhere goes on bit
// for bit. Several processes do all of it alike, with a part of every batch each; the first one writes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/adamw.h"
#include "train/checkpoint.h"
#include "train/gradient_exchange.h"
#include "train/metrics_log.h"
#include "train/replicas.h"
#include "train/task.h"
#include "train/training_options.h"

namespace ramify::train {

struct Progress {
  int64_t epoch = 0, epochs = 0;  // from 1
  int64_t step = 0, steps = 0;
  double loss = 0;       // mean since the last line of metrics
  double accuracy = -1;  // the same; -1: the task has none
  double records_per_second = 0, leaves_per_second = 0;
  double seconds_left = 0;
};

class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void on_step(const Progress&) {}
  virtual void on_validation(int64_t /*epoch*/, const nlohmann::json& /*figures*/, bool /*best*/) {}
};

enum class Outcome { finished, stopped_early, interrupted };

struct TrainerParts {
  TrainingTask& task;
  const TrainingOptions& options;
  std::string folder;  // of the run
  TrainingObserver& observer;
  const Replicas& replicas;
};

class Trainer {
 public:
  explicit Trainer(TrainerParts parts);

  // Goes on where the checkpoint in the folder of the first process stands. io::Error if there is a broken one.
  void resume();

  // Until the end, or until a signal is caught (InterruptGuard); then a checkpoint is written first.
  Outcome run();

  const TrainingState& state() const { return state_; }
  int64_t total_steps() const { return total_steps_; }

 private:
  void begin_alike();
  bool run_epoch();  // false: interrupted
  void step();
  void require_finite(double loss) const;
  void read_done_steps();
  void report_step();
  bool validate();  // false: interrupted
  void checkpoint();
  bool patience_is_over() const;
  double seconds() const;
  std::string checkpoint_folder() const { return parts_.folder + "/checkpoint"; }

  TrainerParts parts_;
  TrainingTask& task_;
  const TrainingOptions& options_;
  AdamW optimizer_;
  std::optional<GradientExchange> exchange_;  // with other processes
  std::optional<MetricsLog> log_;             // of the first process
  TrainingState state_;
  bool stop_ = false;  // a signal was caught, by this process or another
  int64_t total_steps_ = 0, warmup_steps_ = 0, batches_in_epoch_ = 0;
  std::vector<TrainingTask::Step> done_;  // whose numbers have not been read yet: reading waits for the device
  double started_ = 0;                    // of this process, on the steady clock
  double speed_started_ = 0;
  int64_t speed_records_ = 0, speed_leaves_ = 0, speed_steps_ = 0;
};

}  // namespace ramify::train
