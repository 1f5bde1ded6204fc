#include "train/predictor.h"

#include <ATen/core/grad_mode.h>

#include "io/error.h"
#include "train/device.h"
#include "train/explain.h"
#include "train/interrupt.h"
#include "train/objective.h"

namespace ramify::train {

Predictor::Predictor(const std::string& folder, const std::string& device, const std::string& images)
    : device_(open_device(device)), trained_(load_trained(folder, device_)) {
  const std::string archive = images.empty() ? trained_.run.settings.data.images : images;
  signal::CompilerOptions options{.target = signal::TargetUse::optional, .images = archive};
  compiler_ = std::make_shared<const signal::Compiler>(trained_.run.schema, options);
  options.labels = signal::Labels::all;
  labelled_ = std::make_shared<const signal::Compiler>(trained_.run.schema, options);
}

std::vector<nlohmann::json> Predictor::predict(std::span<const std::string> records) {
  std::vector<signal::Signal> signals;
  for (const std::string& record : records) signals.push_back(compiler_->compile(record));
  std::vector<const signal::Signal*> pointers;
  for (const signal::Signal& signal : signals) pointers.push_back(&signal);
  return predict(pointers);
}

std::vector<nlohmann::json> Predictor::predict(std::span<const signal::Signal* const> signals) {
  if (signals.empty()) return {};
  const at::NoGradGuard no_grad;
  const signal::Target& target = trained_.run.schema->target;
  const BatchTensors batch =
      to_tensors(signal::collate(signals, *trained_.run.schema, structure_of(trained_.run.settings.attention)),
                 trained_.model->encoder().inputs(), device_);
  const at::Tensor outputs =
      trained_.model->forward(batch.input, batch.targets.leaf_begin, batch.targets.leaf_end).to(at::kCPU);
  std::vector<nlohmann::json> results;
  int64_t row = 0;
  for (const signal::Signal* signal : signals) {
    if (target.task != signal::Task::nodes) {
      results.push_back(prediction(outputs[row++], target));
      continue;
    }
    nlohmann::json items = nlohmann::json::array();
    for (size_t i = 0; i < signal->target.leaf_begin.size(); ++i) items.push_back(prediction(outputs[row++], target));
    results.push_back({{"predictions", std::move(items)}});
  }
  return results;
}

nlohmann::json Predictor::explain(const std::string& record) {
  return train::explain(*trained_.model, trained_.run, labelled_->compile(record), device_);
}

int64_t predict_files(Predictor& predictor, const std::vector<std::string>& files, const PredictOptions& options,
                      const std::function<void(const nlohmann::json&)>& write) {
  signal::SignalStream stream(files, predictor.compiler(), {.threads = options.workers});
  int64_t bad = 0;
  for (signal::RecordChunk chunk; InterruptGuard::caught() == 0 && stream.next(chunk);) {
    std::vector<const signal::Signal*> good;
    for (const signal::Record& record : chunk.records) {
      if (record.error.empty()) good.push_back(&record.signal);
    }
    const std::vector<nlohmann::json> results = predictor.predict(good);
    size_t next = 0;
    for (const signal::Record& record : chunk.records) {
      if (!record.error.empty() && options.on_bad == signal::OnBad::fail) throw io::Error(record.error);
      nlohmann::json line = {{"line", record.line}};
      if (record.error.empty()) {
        line.update(results[next++]);
      } else {
        line["error"] = record.error;
        ++bad;
      }
      write(line);
    }
    if (options.on_progress) options.on_progress(stream.progress());
  }
  return bad;
}

}  // namespace ramify::train
