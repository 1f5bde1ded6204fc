#include "train/predictor.h"

#include <ATen/core/grad_mode.h>

#include "io/error.h"
#include "train/device.h"
#include "train/explain.h"
#include "train/interrupt.h"
#include "train/leaf_encoder.h"
#include "train/objective.h"

namespace ramify::train {

Predictor::Predictor(const std::string& folder, const std::string& device, const std::string& images)
    : device_(open_device(device)), trained_(load_trained(folder, device_)) {
  const std::string archive = images.empty() ? trained_.run.settings.data.images : images;
  signal::CompilerOptions options{.target = signal::TargetUse::optional,
                                  .images = archive,
                                  .text_vectors = open_leaf_encoder(*trained_.run.schema, device_)};
  compiler_ = std::make_shared<const signal::Compiler>(trained_.run.schema, options);
  options.labels = signal::Labels::all;
  labelled_ = std::make_shared<const signal::Compiler>(trained_.run.schema, options);
}

std::vector<nlohmann::json> Predictor::predict(std::span<const std::string> records, int64_t first) {
  const auto place = [&](size_t i) { return "record " + std::to_string(first + static_cast<int64_t>(i)) + ": "; };
  std::vector<signal::Signal> signals;
  for (const std::string& record : records) {
    try {
      signals.push_back(compiler_->compile(record));
    } catch (const signal::BadRecord& error) {
      throw signal::BadRecord(place(signals.size()) + error.what());
    }
  }
  std::vector<const signal::Signal*> pointers;
  for (const signal::Signal& signal : signals) pointers.push_back(&signal);
  std::vector<nlohmann::json> results = predict(pointers);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].contains("error")) continue;
    throw signal::BadRecord(place(i) + results[i]["error"].get<std::string>());
  }
  return results;
}

std::vector<nlohmann::json> Predictor::predict(std::span<const signal::Signal* const> signals) {
  std::vector<nlohmann::json> results;
  while (!signals.empty()) {
    // as large as the batches of training: more may not fit into memory
    size_t count = 1;
    int64_t leaves = signals[0]->num_leaves();
    while (count < signals.size()) {
      leaves += signals[count]->num_leaves();
      if (leaves > trained_.run.settings.training.batch_leaves) break;
      ++count;
    }
    predict_batch(signals.first(count), results);
    signals = signals.subspan(count);
  }
  return results;
}

void Predictor::predict_batch(std::span<const signal::Signal* const> signals, std::vector<nlohmann::json>& results) {
  const at::NoGradGuard no_grad;
  const signal::Target& target = trained_.run.schema->target;
  const BatchTensors batch =
      to_tensors(signal::collate(signals, *trained_.run.schema, structure_of(trained_.run.settings.attention)),
                 trained_.model->inputs(), device_);
  const at::Tensor outputs =
      trained_.model->forward(batch.input, batch.targets.leaf_begin, batch.targets.leaf_end).to(at::kCPU);
  int64_t row = 0;
  for (const signal::Signal* signal : signals) {
    const bool has_items = target.task == signal::Task::nodes;
    const auto rows = has_items ? static_cast<int64_t>(signal->target.leaf_begin.size()) : 1;
    const at::Tensor own = outputs.narrow(0, row, rows);
    row += rows;
    nlohmann::json& result = results.emplace_back();
    if (!own.isfinite().all().item<bool>()) {
      result["error"] = "the model's outputs are not finite: numbers in the record are too large for it";
    } else if (has_items) {
      result["predictions"] = nlohmann::json::array();
      for (int64_t i = 0; i < rows; ++i) result["predictions"].push_back(prediction(own[i], target));
    } else {
      result = prediction(own[0], target);
    }
    if (signal->truncated) result["truncated"] = true;
  }
}

nlohmann::json Predictor::explain(const std::string& record) {
  return train::explain(*trained_.model, trained_.run, labelled_->compile(record), device_);
}

int64_t predict_files(Predictor& predictor, const std::vector<std::string>& files, const PredictOptions& options,
                      const std::function<void(const nlohmann::json&)>& write) {
  signal::StreamOptions how{.threads = options.workers};
  if (predictor.run().schema->has_text_vectors()) how.chunk_records = signal::kChunkOfEncodedRecords;
  signal::SignalStream stream(files, predictor.compiler(), how);
  int64_t bad = 0;
  for (signal::RecordChunk chunk; InterruptGuard::caught() == 0 && stream.next(chunk);) {
    std::vector<const signal::Signal*> good;
    for (const signal::Record& record : chunk.records) {
      if (record.error.empty()) good.push_back(&record.signal);
    }
    const std::vector<nlohmann::json> results = predictor.predict(good);
    size_t next = 0;
    for (const signal::Record& record : chunk.records) {
      const std::string& file = files[static_cast<size_t>(record.file)];
      nlohmann::json line = {{"line", record.line}};
      if (files.size() > 1) line["file"] = file;
      line.update(record.error.empty() ? results[next++] : nlohmann::json{{"error", record.error}});
      if (line.contains("error")) {
        const std::string where = record.error.empty() ? file + ":" + std::to_string(record.line) + ": " : "";
        if (options.on_bad == signal::OnBad::fail) throw io::Error(where + line["error"].get<std::string>());
        ++bad;
      }
      write(line);
    }
    if (options.on_progress) options.on_progress(stream.progress());
  }
  return bad;
}

}  // namespace ramify::train
