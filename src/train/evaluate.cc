#include "train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "train/feeder.h"

namespace ramify::train {
namespace {

// A batch that went through the model.
struct ScoredBatch {
  at::Tensor outputs;
  signal::Targets targets;  // without their leaves
  std::vector<int64_t> records;
  int64_t leaves = 0, known_rows = 0;
  double loss = 0;
};

// Which records a classifier got right, one row a record.
void sort_records(const ScoredBatch& batch, Evaluation& evaluation) {
  const at::Tensor best = batch.outputs.argmax(1).to(at::kCPU);
  for (size_t i = 0; i < batch.records.size(); ++i) {
    const bool right = best.const_data_ptr<int64_t>()[i] == batch.targets.classes[i];
    (right ? evaluation.right : evaluation.wrong).push_back(batch.records[i]);
  }
}

ScoredBatch score(const nn::Network& model, const BatchTensors& batch, const signal::Target& target) {
  const at::Tensor outputs = model.forward(batch.input, batch.targets.leaf_begin, batch.targets.leaf_end);
  const signal::Targets& targets = batch.source->targets;
  return {.outputs = outputs,
          .targets = {.leaf_begin = {}, .leaf_end = {}, .classes = targets.classes, .values = targets.values},
          .records = batch.source->records,
          .leaves = batch.source->num_leaves(),
          .known_rows = batch.targets.known_rows,
          .loss = loss(outputs, batch.targets, target).item<double>()};
}

std::string to_bytes(const ScoredBatch& batch) {
  const at::Tensor outputs = batch.outputs.to(at::kCPU, at::kDouble).contiguous();
  const double* values = outputs.const_data_ptr<double>();
  const nlohmann::json parts = {{"outputs", std::vector<double>(values, values + outputs.numel())},
                                {"width", outputs.size(1)},
                                {"classes", batch.targets.classes},
                                {"values", batch.targets.values},
                                {"records", batch.records},
                                {"leaves", batch.leaves},
                                {"known_rows", batch.known_rows},
                                {"loss", batch.loss}};
  std::string bytes;
  nlohmann::json::to_cbor(parts, bytes);
  return bytes;
}

ScoredBatch batch_from_bytes(const std::string& bytes) {
  const nlohmann::json parts = nlohmann::json::from_cbor(bytes);
  const auto outputs = parts.at("outputs").get<std::vector<double>>();
  const int64_t width = parts.at("width");
  ScoredBatch batch;
  batch.outputs = at::empty({static_cast<int64_t>(outputs.size()) / width, width}, at::kDouble);
  std::ranges::copy(outputs, batch.outputs.mutable_data_ptr<double>());
  batch.targets.classes = parts.at("classes").get<std::vector<int64_t>>();
  batch.targets.values = parts.at("values").get<std::vector<float>>();
  batch.records = parts.at("records").get<std::vector<int64_t>>();
  batch.leaves = parts.at("leaves");
  batch.known_rows = parts.at("known_rows");
  batch.loss = parts.at("loss");
  return batch;
}

// One batch a process, in their order; of those behind the last batch there is nothing.
std::vector<ScoredBatch> of_all(const Replicas& replicas, std::optional<ScoredBatch> own) {
  std::vector<ScoredBatch> batches;
  if (replicas.size() == 1) {
    if (own) batches.push_back(std::move(*own));
    return batches;
  }
  for (const std::string& bytes : replicas.gather(own ? to_bytes(*own) : "")) {
    if (!bytes.empty()) batches.push_back(batch_from_bytes(bytes));
  }
  return batches;
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
  const Replicas& replicas = options.replicas;
  signal::LoaderOptions loading = options.loader;
  loading.rank = replicas.rank();
  loading.ranks = replicas.size();
  loading.sharing = signal::Sharing::batches;
  signal::Loader loader(data, std::move(records), loading);
  const auto batches = static_cast<int64_t>(loader.batches(0).size());
  Feeder feeder(loader, model, options.device);
  feeder.start(0);
  double weighted_loss = 0;
  int64_t known = 0;
  for (int64_t done = 0; done < batches && !evaluation.was_stopped; done += replicas.size()) {
    const auto own = feeder.next();
    for (const ScoredBatch& batch : of_all(replicas, own ? std::optional(score(model, *own, target)) : std::nullopt)) {
      weighted_loss += batch.loss * batch.known_rows;
      known += batch.known_rows;
      evaluation.scores.add(batch.outputs, batch.targets);
      evaluation.records += static_cast<int64_t>(batch.records.size());
      evaluation.leaves += batch.leaves;
      if (target.task == signal::Task::classification) sort_records(batch, evaluation);
    }
    const bool goes_on = !options.on_progress || options.on_progress(evaluation.records);
    evaluation.was_stopped = replicas.any(!goes_on);
  }
  evaluation.loss = known > 0 ? weighted_loss / known : 0;
  evaluation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  model.train(was_training);
  return evaluation;
}

}  // namespace ramify::train
