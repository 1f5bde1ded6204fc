// `ramify train-lm` with torch: settings from the options, progress, results as a table or JSON.
#include "language_commands.h"

#include <fmt/core.h>

#include <cmath>
#include <stdexcept>

#include "notes.h"
#include "progress_line.h"
#include "report/html.h"
#include "torch_settings.h"
#include "train/interrupt.h"
#include "train/language_run.h"

namespace ramify::cli {
namespace {

using report::with_commas;

// The run's own settings where one goes on, then the config, and over it what was said.
train::LanguageSettings language_settings_of(const TrainLanguageCommand& command) {
  const bool goes_on = command.resume && train::is_run(command.out, train::kLanguageRun);
  nlohmann::json settings =
      goes_on ? train::load_language_run(command.out).settings.to_json() : nlohmann::json::object();
  if (!command.config.empty()) settings.merge_patch(train::read_language_config(command.config));
  settings.merge_patch(command.settings);
  return train::LanguageSettings::from_json(settings);
}

std::string attention_text(const train::LanguageAttention& attention) {
  if (attention.kind == "exact") return "exact";
  std::string text = fmt::format("hierarchical over {}, tie {}", attention.hierarchy, attention.tie);
  if (attention.window > 0) text += fmt::format(", window {}", attention.window);
  return text;
}

class LanguageProgress final : public train::LanguageObserver {
 public:
  void on_reading(const std::string& what, double share, int64_t tokens) override {
    line_.show(fmt::format("reading {} text", what), share, count_text(static_cast<double>(tokens)) + " tokens");
  }

  void on_ready(const train::LanguageRun& run, const train::TrainingState& so_far, int64_t steps) override {
    line_.print(fmt::format("{} tokens to learn from, {} to validate with, in sequences of {}",
                            with_commas(run.train_tokens), with_commas(run.valid_tokens), run.settings.data.context));
    line_.print(fmt::format("attention {}: {} parameters in the layers, {} in the table of {} words; {} steps",
                            attention_text(run.settings.attention), with_commas(run.parameters.encoder),
                            with_commas(run.parameters.tables), with_commas(run.model.vocabulary), with_commas(steps)));
    if (so_far.finished) {
      line_.print("this run is finished; only its scores are computed again");
    } else if (so_far.step > 0) {
      line_.print(fmt::format("going on behind step {}", with_commas(so_far.step)));
    }
  }

  void on_step(const train::Progress& p) override {
    line_.show(fmt::format("epoch {}/{}", p.epoch, p.epochs), static_cast<double>(p.step) / p.steps,
               fmt::format("loss {:.4f}  perplexity {:.4g}  {} tokens/s  {} left", p.loss, std::exp(p.loss),
                           count_text(p.leaves_per_second), duration_text(p.seconds_left)));
  }

  void on_validation(int64_t epoch, const nlohmann::json& figures, bool best) override {
    line_.print(fmt::format("epoch {:3}  validation: loss {:.4f}  perplexity {:.5g}{}", epoch,
                            figures["loss"].get<double>(), figures["perplexity"].get<double>(),
                            best ? "  best so far" : ""));
  }

  void on_note(const std::string& text) override { line_.print(text); }

 private:
  ProgressLine line_;
};

int run_train_language(const TrainLanguageCommand& command, const train::Replicas& replicas) {
  const bool is_first = replicas.is_first();  // only that one knows the folder, and speaks
  const bool has_run = train::is_run(command.out, train::kLanguageRun);
  if (is_first && command.resume && !has_run && !command.settings.contains("data")) {
    throw std::invalid_argument(command.out + ": there is no run to go on with");
  }
  LanguageProgress progress;
  train::LanguageObserver silence;
  const train::RunOptions options{.folder = command.out,
                                  .resume = command.resume,
                                  .device = command.compute.device,
                                  .threads = command.compute.threads,
                                  .workers = command.compute.workers,
                                  .deterministic = command.deterministic,
                                  .leaf_cache = {},
                                  .explanations = 0,
                                  .command = command.command_line,
                                  .replicas = replicas};
  const train::RunResult result = is_first ? train::train_language(language_settings_of(command), options, progress)
                                           : train::train_language({}, options, silence);
  if (result.outcome == train::Outcome::interrupted) {
    if (is_first) {
      tell("interrupted; saved. Go on with: ramify train-lm --resume --out {}\n", command.out);
    }
    return interrupted_status();
  }
  if (!is_first) return 0;
  if (command.json) {
    fmt::print("{}\n", result.evaluation.dump(2));
    return 0;
  }
  for (const char* split : {"valid", "test"}) {
    if (!result.evaluation.contains(split)) continue;
    const nlohmann::json& score = result.evaluation[split];
    fmt::print("{:<8}{:>10} tokens  loss {:.4f}  perplexity {:.5g}\n", split, score["tokens"].get<int64_t>(),
               score["loss"].get<double>(), score["perplexity"].get<double>());
  }
  tell("saved in {}\n", command.out);
  return 0;
}

}  // namespace
}  // namespace ramify::cli

extern "C" {
int ramify_run_train_language(const ramify::cli::TrainLanguageCommand& asked) {
  ramify::cli::TrainLanguageCommand command = asked;
  ramify::cli::apply_compute_options(command.compute);
  return ramify::cli::run_with_replicas(command.compute.launch, [&](const ramify::train::Replicas& replicas) {
    return ramify::cli::run_train_language(command, replicas);
  });
}
}
