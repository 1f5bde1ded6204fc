// `ramify train`, `eval` and `predict` with torch: settings from the options, progress, results as tables or JSON.
#include "training_commands.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <optional>
#include <stdexcept>

#include "io/atomic_file.h"
#include "io/error.h"
#include "line_output.h"
#include "notes.h"
#include "progress_line.h"
#include "report/html.h"
#include "torch_settings.h"
#include "train/interrupt.h"
#include "train/predictor.h"
#include "train/run.h"

namespace ramify::cli {
namespace {

using nlohmann::literals::operator""_json_pointer;

using report::with_commas;

// KEY=VALUE with a path of keys and places, such as model.layers.0.heads=3. What is not JSON is a string.
void apply_setting(nlohmann::json& settings, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw std::invalid_argument("--set " + text + ": expected KEY=VALUE, such as model.layers.0.heads=3");
  }
  std::string path = "/" + text.substr(0, equals);
  std::replace(path.begin(), path.end(), '.', '/');
  const std::string value = text.substr(equals + 1);
  nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
  try {
    const nlohmann::json::json_pointer place(path);
    // lists do not grow: a place that is not there would be filled up with nulls
    for (auto list = place.parent_pointer(), at = place; !at.empty(); at = list, list = list.parent_pointer()) {
      if (settings.contains(list) && settings[list].is_array()) (void)settings.at(at);
    }
    settings[place] = parsed.is_discarded() ? nlohmann::json(value) : parsed;
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("--set " + text + ": there is no such place in the config");
  }
}

// The config, and over it what was said. When a run goes on it begins with the run's own settings, so that what was not
// said is the same.
train::Settings settings_of(const TrainCommand& command) {
  const bool goes_on = command.resume && train::is_run(command.out);
  nlohmann::json settings =
      goes_on ? train::load_description(command.out).settings.to_json() : nlohmann::json::object();
  if (!goes_on || !command.config.empty()) {
    settings.merge_patch(train::read_config(command.config.empty() ? "default" : command.config));
  }
  // what a published model has learned should not be lost in the first steps
  const std::string architecture = command.settings.value("/architecture/name"_json_pointer, "");
  if (!goes_on && command.config.empty() && train::Architecture{.name = architecture}.is_folder()) {
    settings["training"]["rate"] = 3e-5;
  }
  settings.merge_patch(command.settings);
  for (const std::string& text : command.set) apply_setting(settings, text);
  return train::Settings::from_json(settings);
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

std::string figures_text(const nlohmann::json& figures) {
  std::string text = fmt::format("loss {:.4f}", figures.value("loss", 0.0));
  for (const char* name : {"accuracy", "micro_f1", "macro_f1"}) {
    if (figures.contains(name)) text += fmt::format("  {} {}", name, percent(figures[name]));
  }
  for (const char* name : {"rmse", "mae", "r2"}) {
    if (figures.contains(name)) text += fmt::format("  {} {:.4g}", name, figures[name].get<double>());
  }
  return text;
}

class TrainProgress final : public train::RunObserver {
 public:
  void on_reading(const std::string& what, const signal::ReadProgress& progress) override {
    const double share = progress.bytes_total > 0 ? static_cast<double>(progress.bytes) / progress.bytes_total : -1;
    line_.show("reading " + what, share, count_text(static_cast<double>(progress.records)) + " records");
  }

  void on_ready(const train::RunDescription& run, const signal::Dataset& data, const train::TrainingState& so_far,
                int64_t steps) override {
    line_.print(fmt::format("{} records to learn from, {} to validate with, {:.0f} leaves a record on average",
                            with_commas(run.train_records), with_commas(run.valid_records),
                            static_cast<double>(data.num_leaves()) / static_cast<double>(data.size())));
    if (data.num_truncated() > 0) {
      line_.print(fmt::format("{} records were cut off at {} leaves", data.num_truncated(), run.schema->max_leaves));
    }
    line_.print(fmt::format("attention {}: {} parameters in the encoder, {} in tables; {} steps",
                            train::name_of(run.settings.attention), with_commas(run.parameters.encoder),
                            with_commas(run.parameters.tables), with_commas(steps)));
    const int64_t classes = static_cast<int64_t>(run.schema->target.classes.size());
    if (2 * classes > run.train_records && run.schema->target.task == signal::Task::classification) {
      line_.print(fmt::format("{} has {} classes in {} records; is it the right target?", run.schema->target.path,
                              classes, run.train_records));
    }
    if (so_far.finished) {
      line_.print("this run is finished; only its scores are computed again");
    } else if (so_far.step > 0) {
      line_.print(fmt::format("going on behind step {}", with_commas(so_far.step)));
    }
  }

  void on_step(const train::Progress& p) override {
    std::string tail = fmt::format("loss {:.4f}", p.loss);
    if (p.accuracy >= 0) tail += "  accuracy " + percent(p.accuracy);
    tail += fmt::format("  {} records/s  {} left", count_text(p.records_per_second), duration_text(p.seconds_left));
    line_.show(fmt::format("epoch {}/{}", p.epoch, p.epochs), static_cast<double>(p.step) / p.steps, tail);
  }

  void on_validation(int64_t epoch, const nlohmann::json& figures, bool best) override {
    line_.print(fmt::format("epoch {:3}  validation: {}{}", epoch, figures_text(figures), best ? "  best so far" : ""));
  }

  void on_note(const std::string& text) override { line_.print(text); }

 private:
  ProgressLine line_;
};

void print_scores(const std::string& name, const nlohmann::json& scores) {
  const int64_t items = scores.value("items", int64_t{-1});
  fmt::print("{:<8}{:>8} records{}  {}\n", name, scores["records"].get<int64_t>(),
             items >= 0 ? fmt::format(", {} items", items) : "", figures_text(scores));
  if (const int64_t unseen = scores.value("unseen_classes", int64_t{0}); unseen > 0) {
    fmt::print("{:<8}{:>8} of a class that training did not have; they count as wrong\n", "", unseen);
  }
}

void print_classes(const nlohmann::json& scores) {
  if (!scores.contains("per_class")) return;
  fmt::print("\n{:<24}{:>10}{:>10}{:>10}{:>10}\n", "class", "precision", "recall", "F1",
             scores.contains("items") ? "items" : "records");
  for (const nlohmann::json& row : scores["per_class"]) {
    fmt::print("{:<24}{:>10}{:>10}{:>10}{:>10}\n", row["class"].get<std::string>(), percent(row["precision"]),
               percent(row["recall"]), percent(row["f1"]), row["support"].get<int64_t>());
  }
}

int run_train(const TrainCommand& command, const train::Replicas& replicas) {
  const bool is_first = replicas.is_first();  // only that one knows the folder, and speaks
  if (is_first && command.settings["data"].value("train", nlohmann::json()).empty() && !train::is_run(command.out)) {
    throw std::invalid_argument(command.resume ? command.out + ": there is no run to go on with"
                                               : "no DATA; say which records to learn from");
  }
  TrainProgress progress;
  train::RunObserver silence;
  const train::RunOptions options{.folder = command.out,
                                  .resume = command.resume,
                                  .device = command.compute.device,
                                  .threads = command.compute.threads,
                                  .workers = command.compute.workers,
                                  .deterministic = command.deterministic,
                                  .leaf_cache = command.leaf_cache,
                                  .explanations = command.explanations,
                                  .command = command.command_line,
                                  .replicas = replicas};
  const train::RunResult result =
      is_first ? train::train(settings_of(command), options, progress) : train::train({}, options, silence);
  if (result.outcome == train::Outcome::interrupted) {
    if (is_first) tell("interrupted; saved. Go on with: ramify train --resume --out {}\n", command.out);
    return interrupted_status();
  }
  if (!is_first) return 0;
  if (command.json) {
    fmt::print("{}\n", result.evaluation.dump(2));
    return 0;
  }
  for (const char* split : {"valid", "test"}) {
    if (result.evaluation.contains(split)) print_scores(split, result.evaluation[split]);
  }
  tell("saved in {}; look at it with: ramify report {}\n", command.out, command.out);
  return 0;
}

int run_eval(UseCommand command) {
  apply_compute_options(command.compute);
  const train::InterruptGuard interrupts;
  ProgressLine line;
  signal::BadRecords bad;
  const auto show_reading = [&](const signal::ReadProgress& progress) {
    line.show("reading", -1, count_text(static_cast<double>(progress.records)) + " records");
  };
  const nlohmann::json scores =
      train::evaluate_files(command.folder, command.data,
                            {.device = command.compute.device,
                             .workers = command.compute.workers,
                             .on_bad = command.on_bad,
                             .images = command.images,
                             .on_reading = show_reading,
                             .on_progress =
                                 [&](int64_t done, int64_t total) {
                                   line.show("scoring", static_cast<double>(done) / static_cast<double>(total),
                                             count_text(done) + " records");
                                 }},
                            bad);
  line.clear();
  if (train::InterruptGuard::caught() != 0) {
    tell("interrupted\n");
    return interrupted_status();
  }
  if (bad.count > 0) {
    tell("{} skipped, first: {}\n", bad.count == 1 ? "1 bad record was" : fmt::format("{} bad records were", bad.count),
         bad.messages.front());
  }
  if (command.json) {
    fmt::print("{}\n", scores.dump(2));
  } else {
    print_scores("all", scores);
    print_classes(scores);
  }
  return 0;
}

int run_predict(UseCommand command) {
  require_no_input(command.out, command.data);
  apply_compute_options(command.compute);
  const train::InterruptGuard interrupts;
  train::Predictor predictor(command.folder, command.compute.device, command.images);
  LineOutput output(command.out);
  ProgressLine line;
  const int64_t bad = train::predict_files(
      predictor, command.data,
      {.workers = command.compute.workers,
       .on_bad = signal::on_bad_of(command.on_bad),
       .on_progress =
           [&](const signal::ReadProgress& progress) {
             output.flush();
             line.show("predicting", -1, count_text(static_cast<double>(progress.records)) + " records");
           }},
      [&](const nlohmann::json& result) { output.write(result.dump()); });
  line.clear();
  if (train::InterruptGuard::caught() != 0) {
    tell("interrupted\n");
    return interrupted_status();
  }
  output.commit();
  if (bad > 0) tell("{} bad record{} an error instead of a prediction\n", bad, bad == 1 ? " has" : "s have");
  return 0;
}

// Work on a trained model has nothing to save.
int unless_interrupted(int (*run)(UseCommand), const UseCommand& command) {
  try {
    return run(command);
  } catch (const train::Interrupted&) {
    tell("interrupted\n");
    return interrupted_status();
  }
}

}  // namespace
}  // namespace ramify::cli

extern "C" {
int ramify_run_train(const ramify::cli::TrainCommand& asked) {
  ramify::cli::TrainCommand command = asked;
  ramify::cli::apply_compute_options(command.compute);
  return ramify::cli::run_with_replicas(command.compute.launch, [&](const ramify::train::Replicas& replicas) {
    return ramify::cli::run_train(command, replicas);
  });
}
int ramify_run_eval(const ramify::cli::UseCommand& command) {
  return ramify::cli::unless_interrupted(ramify::cli::run_eval, command);
}
int ramify_run_predict(const ramify::cli::UseCommand& command) {
  return ramify::cli::unless_interrupted(ramify::cli::run_predict, command);
}
}
