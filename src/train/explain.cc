#include "train/explain.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <optional>

#include "signal/stream.h"
#include "signal/tree_json.h"
#include "train/batch_tensors.h"
#include "train/objective.h"

namespace ramify::train {
namespace {

constexpr size_t kShownProbabilities = 5;

// What each leaf receives; empty without attention.
std::vector<double> leaf_mass(const nn::Network& model, const BatchTensors& batch) {
  const at::Tensor mass = model.leaf_mass(batch.input);
  if (!mass.defined()) return {};
  return {mass.const_data_ptr<double>(), mass.const_data_ptr<double>() + mass.numel()};
}

nlohmann::json truth_of(const signal::SignalTarget& known, const signal::Target& target) {
  if (target.task == signal::Task::regression) return known.value;
  nlohmann::json names = nlohmann::json::array();
  for (const int32_t c : known.classes) names.push_back(c < 0 ? nlohmann::json() : nlohmann::json(target.classes[c]));
  return target.task == signal::Task::classification ? names.at(0) : names;
}

nlohmann::json most_likely(const nlohmann::json& probabilities) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, share] : probabilities.items()) sorted.emplace_back(-share.get<double>(), name);
  std::ranges::sort(sorted);
  nlohmann::json shown = nlohmann::json::object();
  for (size_t i = 0; i < std::min(sorted.size(), kShownProbabilities); ++i) shown[sorted[i].second] = -sorted[i].first;
  return shown;
}

}  // namespace

nlohmann::json explain(nn::Network& model, const RunDescription& run, const signal::Signal& labelled,
                       at::Device device) {
  const at::NoGradGuard no_grad;
  const signal::Signal* const one[] = {&labelled};
  const BatchTensors batch =
      to_tensors(signal::collate(one, *run.schema, structure_of(run.settings.attention)), model.inputs(), device);
  const at::Tensor outputs = model.forward(batch.input, batch.targets.leaf_begin, batch.targets.leaf_end);
  nlohmann::json result = {{"tree", signal::tree_json(labelled, leaf_mass(model, batch))}};
  if (const std::optional<double> zeros = model.zero_weights(batch.input)) result["zero_weights"] = *zeros;
  if (labelled.target.known) result["truth"] = truth_of(labelled.target, run.schema->target);
  if (run.schema->target.task == signal::Task::nodes) {
    result["prediction"] = nlohmann::json::array();
    for (int64_t row = 0; row < outputs.size(0); ++row) {
      result["prediction"].push_back(prediction(outputs[row], run.schema->target)["prediction"]);
    }
    return result;
  }
  const nlohmann::json predicted = prediction(outputs[0], run.schema->target);
  result["prediction"] = predicted["prediction"];
  if (predicted.contains("probabilities")) result["probabilities"] = most_likely(predicted["probabilities"]);
  return result;
}

nlohmann::json explain_records(nn::Network& model, const RunDescription& run, const signal::Dataset& data,
                               const std::vector<int64_t>& records, at::Device device,
                               std::shared_ptr<const signal::TextVectors> text_vectors) {
  const signal::Compiler compiler(
      run.schema,
      {.labels = signal::Labels::all, .images = run.settings.data.images, .text_vectors = std::move(text_vectors)});
  std::map<std::string, std::vector<int64_t>> lines;  // by file
  for (const int64_t record : records) lines[data.file(record)].push_back(data.line(record));
  nlohmann::json explained = nlohmann::json::array();
  for (auto& [file, numbers] : lines) {
    if (file == "-") continue;  // standard input cannot be read twice
    std::ranges::sort(numbers);
    for (const signal::Record& record : signal::read_lines(file, numbers, compiler)) {
      if (!record.error.empty()) continue;
      nlohmann::json one = explain(model, run, record.signal, device);
      one["line"] = record.line;
      explained.push_back(std::move(one));
    }
  }
  return {{"records", explained}};
}

}  // namespace ramify::train
