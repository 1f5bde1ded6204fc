#include "train/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <chrono>

#include "train/feeder.h"

namespace ramify::train {
namespace {

// Which records a classifier got right, one row a record.
void sort_records(const at::Tensor& outputs, const signal::Batch& batch, Evaluation& evaluation) {
  const at::Tensor best = outputs.argmax(1).to(at::kCPU);
  for (size_t i = 0; i < batch.records.size(); ++i) {
    const bool right = best.const_data_ptr<int64_t>()[i] == batch.targets.classes[i];
    (right ? evaluation.right : evaluation.wrong).push_back(batch.records[i]);
  }
}

}  // namespace

EvaluationOptions evaluation_options(const Settings& settings, at::Device device, int workers) {
  return {.loader = {.batch_records = settings.training.batch_records,
                     .batch_leaves = settings.training.batch_leaves,
                     .order = signal::Order::as_given,
                     .structure = structure_of(settings.attention),
                     .threads = std::max(1, workers)},
          .device = device,
          .on_progress = {}};
}

nlohmann::json Evaluation::to_json() const {
  nlohmann::json json = scores.evaluation();
  json["records"] = records;
  json["loss"] = loss;
  json["seconds"] = seconds;
  if (seconds > 0) json["leaves_per_second"] = static_cast<double>(leaves) / seconds;
  return json;
}

Evaluation evaluate(nn::Network& model, const signal::Dataset& data, std::vector<int64_t> records,
                    const EvaluationOptions& options) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const signal::Target& target = data.schema()->target;
  Evaluation evaluation{.scores = Scores(target)};
  const auto start = std::chrono::steady_clock::now();
  signal::Loader loader(data, std::move(records), options.loader);
  Feeder feeder(loader, model, options.device);
  feeder.start(0);
  double weighted_loss = 0;
  int64_t known = 0;
  while (const auto batch = feeder.next()) {
    const at::Tensor outputs = model.forward(batch->input, batch->targets.leaf_begin, batch->targets.leaf_end);
    weighted_loss += loss(outputs, batch->targets, target).item<double>() * batch->targets.known_rows;
    known += batch->targets.known_rows;
    evaluation.scores.add(outputs, batch->source->targets);
    evaluation.records += static_cast<int64_t>(batch->source->records.size());
    evaluation.leaves += batch->source->num_leaves();
    if (target.task == signal::Task::classification) sort_records(outputs, *batch->source, evaluation);
    if (options.on_progress && !options.on_progress(evaluation.records)) break;
  }
  evaluation.loss = known > 0 ? weighted_loss / known : 0;
  evaluation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  model.train(was_training);
  return evaluation;
}

}  // namespace ramify::train
