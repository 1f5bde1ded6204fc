// `ramify compare` with torch: labelled texts, variants, progress, and the results as a table, JSON and a page.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "compare/comparison.h"
#include "io/atomic_file.h"
#include "line_output.h"
#include "model_commands.h"
#include "notes.h"
#include "progress_line.h"
#include "published_model.h"
#include "report/html.h"
#include "report/swap_page.h"
#include "signal/random.h"
#include "torch_settings.h"
#include "train/interrupt.h"

namespace ramify::cli {
namespace {

// `limit` of them at random, in their order.
std::vector<signal::TextRecord> drawn(std::vector<signal::TextRecord> records, int64_t limit, int64_t seed) {
  if (limit == 0 || limit >= static_cast<int64_t>(records.size())) return records;
  signal::Random random(static_cast<uint64_t>(seed));
  std::vector<size_t> places(records.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  for (size_t i = 0; i < static_cast<size_t>(limit); ++i) {
    std::swap(places[i], places[i + random.below(places.size() - i)]);
  }
  places.resize(static_cast<size_t>(limit));
  std::ranges::sort(places);
  std::vector<signal::TextRecord> chosen;
  for (const size_t place : places) chosen.push_back(std::move(records[place]));
  return chosen;
}

compare::LabelledTexts read_texts(const CompareCommand& command, const std::vector<std::string>& files, int64_t limit,
                                  const models::TextModel& model) {
  compare::LabelledTexts read;
  if (files.empty()) return read;
  const int64_t max_tokens = max_tokens_of(command.model, model.config());
  for (const signal::TextRecord& record :
       drawn(signal::read_text_records(files, command.fields), limit, command.seed)) {
    train::Interrupted::throw_if_caught();
    read.texts.push_back(command.fields.second.empty()
                             ? model.tokenizer().tokenize(record.text, max_tokens, /*with_segments=*/true)
                             : model.tokenizer().tokenize(record.text, record.second, max_tokens));
    read.labels.push_back(record.label);
  }
  return read;
}

// What a newcomer would try: late layers first, then all.
std::vector<std::string> usual_variants(int64_t num_layers) {
  std::string late;
  for (int64_t layer = 1; layer < num_layers; layer += 2) {
    if (layer >= num_layers / 2) late += (late.empty() ? "" : ",") + std::to_string(layer);
  }
  if (late.empty()) late = "all";
  return {"2,4,8,16:" + late, "32,4,4:" + late, "64,8:" + late + ":none", "64,8:all:none"};
}

std::vector<compare::Variant> variants_of(const CompareCommand& command, int64_t num_layers) {
  std::vector<compare::Variant> variants;
  const bool usual = command.variants.empty() && !command.ablation;
  for (const std::string& text : usual ? usual_variants(num_layers) : command.variants) {
    variants.push_back(compare::Variant::parse(text, num_layers));
  }
  if (command.ablation) std::ranges::move(compare::ablation(num_layers), std::back_inserter(variants));
  for (compare::Variant& variant : variants) variant.attention.include_self = command.model.include_self;
  return variants;
}

double mean_divergence(const compare::VariantResult& result) {
  double sum = 0, count = 0;
  for (const compare::LayerDrift& layer : result.drift) {
    if (!std::isfinite(layer.divergence)) continue;
    sum += layer.divergence;
    ++count;
  }
  return count > 0 ? sum / count : NAN;
}

void print_table(const compare::Comparison& comparison) {
  size_t width = 8;
  for (const auto& result : comparison.results) width = std::max(width, result.name.size());
  fmt::print("{:{}}  {:>8} {:>9} {:>7} {:>7} {:>6} {:>7} {:>7} {:>11} {:>10} {:>6}\n", "variant", width, "accuracy",
             "precision", "recall", "F1", "agree", "cosine", "KL", "paper FLOPs", "attention", "whole");
  const compare::VariantResult& exact = comparison.results.front();
  for (const auto& result : comparison.results) {
    const double divergence = mean_divergence(result);
    fmt::print("{:{}}  {:>8.3f} {:>9.3f} {:>7.3f} {:>7.3f} {:>6.3f} {:>7.3f} {:>7} {:>10.1f}% {:>9.0f}% {:>5.0f}%\n",
               result.name, width, result.scores.accuracy, result.scores.precision, result.scores.recall,
               result.scores.f1, result.agreement, result.cosine,
               std::isnan(divergence) ? "-" : fmt::format("{:.3f}", divergence),
               100 * result.paper_flops / exact.paper_flops, 100 * result.attention_seconds / exact.attention_seconds,
               100 * result.seconds / exact.seconds);
  }
  fmt::print(
      "\n{} texts, {} tokens; {}. FLOPs of attention and times in percent of exact: exact attention took {:.1f} s of "
      "{:.1f} s.\n",
      report::with_commas(comparison.test_texts), report::with_commas(comparison.tokens),
      comparison.folds > 0
          ? fmt::format("cross-validated in {} parts", comparison.folds)
          : fmt::format("the head learned from {} others", report::with_commas(comparison.train_texts)),
      exact.attention_seconds, exact.seconds);
}

int run(const CompareCommand& command) {
  const train::InterruptGuard interrupts;
  const models::TextModel model = open_encoder(command.model);
  // what cannot be written should be known before the work
  std::optional<io::AtomicFile> json_file, html_file;
  if (!command.json.empty() && command.json != "-") json_file.emplace(command.json);
  if (!command.html.empty()) html_file.emplace(command.html);
  const auto variants = variants_of(command, model.num_layers());
  const auto train = read_texts(command, command.data, command.limit, model);
  const auto test = read_texts(command, command.test, command.limit_test, model);
  ProgressLine line;
  size_t done = 0;
  std::string now;
  const compare::CompareOptions options{
      .pooling = command.pooling == "cls" ? models::Pooling::cls : models::Pooling::mean,
      .batch_tokens = command.batch_tokens,
      .folds = command.folds,
      .drift_texts = command.drift_texts,
      .on_progress = [&](const std::string& what, double share) {
        done += what != now;
        now = what;
        line.show(fmt::format("{} ({} of {})", what, done, variants.size() + 2), share, "");
        return train::InterruptGuard::caught() == 0;
      }};
  const compare::Comparison comparison = compare::compare(model, train, test, variants, options);
  line.clear();
  if (train::InterruptGuard::caught() != 0) {
    tell("interrupted\n");
    return interrupted_status();
  }
  nlohmann::json json = comparison.to_json();
  json["model"] = std::filesystem::path(command.model.folder + "/").parent_path().filename().string();
  if (command.json == "-") {
    fmt::print("{}\n", json.dump(2));
  } else {
    print_table(comparison);
    if (json_file) {
      json_file->write(json.dump(2) + "\n");
      json_file->commit();
    }
  }
  if (html_file) {
    html_file->write(report::swap_page(json));
    html_file->commit();
    tell("the page is {}\n", command.html);
  }
  return 0;
}

}  // namespace
}  // namespace ramify::cli

extern "C" int ramify_run_compare(const ramify::cli::CompareCommand& given) {
  ramify::cli::CompareCommand command = given;
  for (const auto& inputs : {command.data, command.test}) {
    ramify::cli::require_no_input(command.json, inputs);
    ramify::cli::require_no_input(command.html, inputs);
  }
  ramify::cli::apply_compute_options(command.model.compute);
  try {
    return ramify::cli::run(command);
  } catch (const ramify::train::Interrupted&) {
    ramify::cli::tell("interrupted\n");
    return ramify::cli::interrupted_status();
  }
}
