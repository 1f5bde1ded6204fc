#include "train/record_task.h"

#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/interrupt.h"
#include "train/objective.h"

namespace ramify::train {
namespace {

// What the settings say of a batch is for one process; together they have so many times as much.
signal::LoaderOptions training_loader(const Settings& settings, int workers, const Replicas& replicas) {
  return {.batch_records = settings.training.batch_records * replicas.size(),
          .batch_leaves = settings.training.batch_leaves * replicas.size(),
          .order = signal::Order::shuffled,
          .seed = settings.training.seed,
          .structure = structure_of(settings.attention),
          .graph_signs = signal::GraphSigns::flipped,
          .rank = replicas.rank(),
          .ranks = replicas.size(),
          .threads = workers};
}

bool has_classes(const signal::Target& target) {
  return target.task == signal::Task::classification || target.task == signal::Task::nodes;
}

TrainingTask::Hits count_hits(const at::Tensor& outputs, const signal::Batch& batch) {
  TrainingTask::Hits hits;
  const at::Tensor best = outputs.argmax(1).to(at::kCPU);
  const std::vector<int64_t>& classes = batch.targets.classes;
  for (size_t i = 0; i < classes.size(); ++i) {
    hits.rows += classes[i] >= 0;
    hits.right += best.const_data_ptr<int64_t>()[i] == classes[i];
  }
  return hits;
}

}  // namespace

RecordTask::RecordTask(RecordTaskParts parts)
    : parts_(std::move(parts)),
      target_(parts_.train.schema()->target),
      loader_(parts_.train, parts_.train_records, training_loader(parts_.settings, parts_.workers, parts_.replicas)) {
  parts_.model.set_table_gradient(TableGradient::rows);
}

int64_t RecordTask::num_batches(int64_t epoch) const {
  return static_cast<int64_t>(loader_.batches(epoch).size());
}

void RecordTask::start(int64_t epoch, int64_t first_batch) {
  feeder_.emplace(loader_, parts_.model, parts_.device);
  feeder_->start(epoch, first_batch);
}

bool RecordTask::advance() {
  batch_ = feeder_->next();
  return batch_.has_value();
}

TrainingTask::Step RecordTask::forward() {
  const BatchTensors& batch = *batch_;
  if (batch.source->records.empty()) return {.loss = {}, .weight = 0, .hits = {}};
  const at::Tensor outputs = parts_.model.forward(batch.input, batch.targets.leaf_begin, batch.targets.leaf_end);
  Step step{.loss = loss(outputs, batch.targets, target_, parts_.settings.training.label_smoothing),
            .weight = static_cast<double>(batch.targets.known_rows),
            .records = static_cast<int64_t>(batch.source->records.size()),
            .leaves = batch.source->num_leaves(),
            .hits = {}};
  if (has_classes(target_)) {
    step.hits = [outputs = outputs.detach(), source = batch.source] { return count_hits(outputs, *source); };
  }
  return step;
}

std::optional<TrainingTask::Validation> RecordTask::validate() {
  EvaluationOptions options = evaluation_options(parts_.settings, parts_.device, parts_.workers);
  options.on_progress = [](int64_t) { return InterruptGuard::caught() == 0; };
  options.replicas = parts_.replicas;
  const Evaluation evaluation = evaluate(parts_.model, parts_.valid, parts_.valid_records, options);
  if (evaluation.was_stopped) return std::nullopt;
  return Validation{
      .loss = evaluation.loss, .quality = evaluation.scores.quality(), .figures = evaluation.scores.figures()};
}

void RecordTask::save_best(const std::string& folder) const {
  save_model(folder + "/model", parts_.model);
}

std::vector<std::string_view> RecordTask::columns() const {
  return {"split", "step", "epoch", "loss", "accuracy",           "macro_f1",          "micro_f1",
          "rmse",  "mae",  "r2",    "rate", "records_per_second", "leaves_per_second", "seconds"};
}

}  // namespace ramify::train
