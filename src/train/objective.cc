#include "train/objective.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace ramify::train {
namespace {

using signal::Task;

int64_t argmax(const float* row, size_t classes) {
  return std::max_element(row, row + classes) - row;
}

std::variant<Confusion, LabelCounts, NumberErrors> empty_counts(const signal::Target& target) {
  const auto classes = static_cast<int64_t>(target.classes.size());
  switch (target.task) {
    case Task::classification:
    case Task::nodes:
      return Confusion(classes);
    case Task::multilabel:
      return LabelCounts(classes);
    case Task::regression:
      return NumberErrors();
    case Task::none:
      break;
  }
  throw std::invalid_argument("there is no target to be scored");
}

double in_units(double output, const signal::Target& target) {
  return output * target.deviation + target.mean;
}

constexpr size_t kMaxMatrixClasses = 256;  // of a confusion matrix: it grows with the square

// Six digits: those that follow differ from machine to machine.
double rounded(double share) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, share, std::chars_format::general, 6).ptr;
  double result = 0;
  std::from_chars(text, end, result);
  return result;
}

}  // namespace

at::Tensor loss(const at::Tensor& outputs, const TargetTensors& targets, const signal::Target& target,
                double label_smoothing) {
  const at::Tensor logits = outputs.scalar_type() == at::kDouble ? outputs : outputs.to(at::kFloat);
  if (targets.known_rows == 0) return logits.sum() * 0;
  switch (target.task) {
    case Task::classification:
    case Task::nodes:
      return at::cross_entropy_loss(logits, targets.classes, {}, at::Reduction::Mean, signal::kNoClass,
                                    label_smoothing);
    case Task::multilabel:
      return at::binary_cross_entropy_with_logits(logits, targets.values.view_as(logits).to(logits.scalar_type()));
    case Task::regression:
      return at::mse_loss(logits.squeeze(1), targets.values.to(logits.scalar_type()));
    case Task::none:
      break;
  }
  throw std::invalid_argument("there is no target to learn");
}

Scores::Scores(const signal::Target& target) : target_(target), counts_(empty_counts(target)) {}

void Scores::add(const at::Tensor& outputs, const signal::Targets& targets) {
  const at::Tensor rows = outputs.detach().to(at::kCPU, at::kFloat).contiguous();
  const int64_t width = rows.size(1);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const float* row = rows.const_data_ptr<float>() + i * width;
    if (auto* errors = std::get_if<NumberErrors>(&counts_)) {
      if (std::isnan(targets.values[i])) continue;
      errors->add(in_units(targets.values[i], target_), in_units(*row, target_));
    } else if (target_.task == Task::multilabel) {
      if (std::isnan(targets.values[i * width])) continue;
      add_labels(row, targets.values.data() + i * width);
    } else {
      if (targets.classes[i] == signal::kNoClass) continue;
      const int64_t predicted = argmax(row, target_.classes.size());
      auto& confusion = std::get<Confusion>(counts_);
      if (targets.classes[i] == signal::kUnseenClass) {
        confusion.add_unseen(predicted);
      } else {
        confusion.add(targets.classes[i], predicted);
      }
    }
    ++rows_;
  }
}

void Scores::add_labels(const float* row, const float* truth) {
  auto& counts = std::get<LabelCounts>(counts_);
  bool exact = true;
  for (size_t label = 0; label < target_.classes.size(); ++label) {
    const bool is = truth[label] > 0.5F, says = row[label] > 0;
    counts.add(static_cast<int64_t>(label), is, says);
    exact = exact && is == says;
  }
  counts.add_record(exact);
}

double Scores::quality() const {
  if (const auto* errors = std::get_if<NumberErrors>(&counts_)) return -errors->rmse();
  if (const auto* labels = std::get_if<LabelCounts>(&counts_)) return labels->micro_f1();
  return std::get<Confusion>(counts_).accuracy();
}

nlohmann::json Scores::figures() const {
  if (const auto* errors = std::get_if<NumberErrors>(&counts_)) {
    return {{"rmse", errors->rmse()}, {"mae", errors->mae()}, {"r2", errors->r2()}};
  }
  if (const auto* labels = std::get_if<LabelCounts>(&counts_)) {
    return {{"accuracy", labels->exact_match()}, {"micro_f1", labels->micro_f1()}, {"macro_f1", labels->macro_f1()}};
  }
  const auto& confusion = std::get<Confusion>(counts_);
  return {{"accuracy", confusion.accuracy()}, {"macro_f1", confusion.macro_f1()}};
}

nlohmann::json Scores::evaluation() const {
  nlohmann::json all = figures();
  all[target_.task == Task::nodes ? "items" : "records"] = rows_;
  if (const auto* errors = std::get_if<NumberErrors>(&counts_)) {
    all["pairs"] = errors->pairs();
    return all;
  }
  all["classes"] = target_.classes;
  if (const auto* labels = std::get_if<LabelCounts>(&counts_)) {
    all["per_class"] = labels->per_class(target_.classes);
    return all;
  }
  const auto& confusion = std::get<Confusion>(counts_);
  all["per_class"] = confusion.per_class(target_.classes);
  if (confusion.unseen() > 0) all["unseen_classes"] = confusion.unseen();
  if (target_.classes.size() <= kMaxMatrixClasses) all["confusion"] = confusion.matrix();
  return all;
}

nlohmann::json prediction(const at::Tensor& row, const signal::Target& target) {
  const at::Tensor values = row.detach().to(at::kCPU, at::kDouble).contiguous();
  if (target.task == Task::regression) return {{"prediction", in_units(values[0].item<double>(), target)}};
  const at::Tensor probabilities = target.task == Task::multilabel ? at::sigmoid(values) : at::softmax(values, 0);
  const double* shares = probabilities.const_data_ptr<double>();
  nlohmann::json named = nlohmann::json::object(), labels = nlohmann::json::array();
  for (size_t c = 0; c < target.classes.size(); ++c) {
    named[target.classes[c]] = rounded(shares[c]);
    if (shares[c] > 0.5) labels.push_back(target.classes[c]);
  }
  if (target.task == Task::multilabel) return {{"prediction", labels}, {"probabilities", named}};
  const auto best = std::max_element(shares, shares + target.classes.size()) - shares;
  return {{"prediction", target.classes[best]}, {"probabilities", named}};
}

}  // namespace ramify::train
