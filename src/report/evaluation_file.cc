// evaluation.json: the scores of each split.
#include <fmt/core.h>

#include <algorithm>

#include "report/json_file.h"
#include "report/run_files.h"

namespace ramify::report {
namespace {

std::vector<std::vector<int64_t>> read_confusion(const JsonField& field, size_t classes) {
  const std::vector<JsonField> rows = field.items();
  if (rows.size() != classes) {
    throw Error(fmt::format("{}: {} rows, {} classes; expected a row a class", field.place(), rows.size(), classes));
  }
  std::vector<std::vector<int64_t>> confusion;
  for (const JsonField& row : rows) {
    const std::vector<double> numbers = row.numbers();
    if (numbers.size() != classes) {
      throw Error(
          fmt::format("{}: {} counts, {} classes; expected a count a class", row.place(), numbers.size(), classes));
    }
    std::vector<int64_t>& counts = confusion.emplace_back();
    for (const double number : numbers) {
      if (!(number >= 0 && number <= 9e15)) throw Error(row.place() + ": expected counts of records");
      counts.push_back(static_cast<int64_t>(number));
    }
  }
  return confusion;
}

std::vector<std::pair<double, double>> read_pairs(const JsonField& field) {
  std::vector<std::pair<double, double>> pairs;
  for (const JsonField& item : field.items()) {
    const std::vector<double> both = item.numbers();
    if (both.size() != 2) throw Error(item.place() + ": expected a truth and a prediction");
    pairs.emplace_back(both[0], both[1]);
  }
  return pairs;
}

ClassScore read_class_score(const JsonField& field) {
  return {field.at("class").text(), field.at("precision").number(), field.at("recall").number(),
          field.at("f1").number(), field.at("support").count()};
}

Evaluation read_evaluation(const std::string& split, const JsonField& field) {
  Evaluation evaluation;
  evaluation.split = split;
  for (const auto& [key, member] : field.members()) {
    const bool is_score = key != "records" && key != "items" && key != "seconds" && !key.ends_with("_per_second");
    if (is_score && member.value().is_number()) evaluation.figures.emplace_back(key, member.number());
  }
  evaluation.records = field.at("records").count();
  if (const auto items = field.find("items")) evaluation.items = items->count();
  if (const auto classes = field.find("classes")) evaluation.classes = classes->texts();
  if (const auto confusion = field.find("confusion")) {
    evaluation.confusion = read_confusion(*confusion, evaluation.classes.size());
  }
  if (const auto scores = field.find("per_class")) {
    for (const JsonField& score : scores->items()) evaluation.per_class.push_back(read_class_score(score));
  }
  if (const auto pairs = field.find("pairs")) evaluation.pairs = read_pairs(*pairs);
  return evaluation;
}

}  // namespace

EvaluationFile read_evaluations(std::string_view text, const std::string& name) {
  const nlohmann::json document = parse_json(text, name);
  EvaluationFile file;
  for (const auto& [split, field] : JsonField(document, name + ": ").members()) {
    if (split == "peak_memory_bytes") {
      file.peak_memory_bytes = field.number();
    } else if (!field.value().is_null()) {
      file.splits.push_back(read_evaluation(split, field));
    }
  }
  const auto rank = [](const Evaluation& each) { return each.split == "test" ? 0 : each.split == "valid" ? 1 : 2; };
  std::stable_sort(file.splits.begin(), file.splits.end(),
                   [&](const Evaluation& a, const Evaluation& b) { return rank(a) < rank(b); });
  return file;
}

}  // namespace ramify::report
