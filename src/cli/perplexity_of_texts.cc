// `ramify perplexity` with torch: running text in sequences, or texts by themselves.
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "generation_commands.h"
#include "models/language_loss.h"
#include "notes.h"
#include "progress_line.h"
#include "published_model.h"
#include "report/html.h"
#include "signal/text_records.h"
#include "torch_settings.h"
#include "train/interrupt.h"
#include "train/language_task.h"

namespace ramify::cli {
namespace {

class Foretelling {
 public:
  explicit Foretelling(const PerplexityCommand& command)
      : command_(command),
        model_(open_decoder(command.model)),
        plan_(decoder_plan(command.model, command.exact, model_)) {
    const int64_t positions = model_.config().max_tokens();
    context_ = command.context > 0 ? command.context : positions;
    const auto follows_text = [](const auto& layer) { return layer && layer->hierarchy.follows_text(); };
    if (!command.separate && std::ranges::any_of(plan_.layers, follows_text)) {
      throw std::invalid_argument("sequences of running text have no sentences or paragraphs; add --separate");
    }
    if (context_ < 2) throw std::invalid_argument("--context: expected at least 2 tokens");
    if (context_ > positions && !command.model.allow_extrapolation) {
      throw std::invalid_argument(
          fmt::format("--context {}: the model has {} positions; ask for fewer, or add "
                      "--allow-extrapolation",
                      context_, positions));
    }
  }

  int run() {
    train::LanguageScore score;
    try {
      score = command_.separate ? texts_apart() : running_text();
      train::Interrupted::throw_if_caught();
    } catch (const train::Interrupted&) {
      line_.clear();
      tell("interrupted\n");
      return interrupted_status();
    }
    line_.clear();
    if (score.tokens == 0) throw io::Error("there is no text of two tokens; nothing can be foretold");
    print(score);
    return 0;
  }

 private:
  train::LanguageScore running_text() {
    train::TokenReading reading;
    reading.field = command_.field;
    reading.on_progress = [this](double share, int64_t tokens) {
      line_.show("reading", share, count_text(static_cast<double>(tokens)) + " tokens");
      train::Interrupted::throw_if_caught();
    };
    const text::SpecialTokens& special = model_.tokenizer().special();
    std::vector<int32_t> before;
    if (special.bounds().beginning) before.push_back(*special.bounds().beginning);
    const train::Sequences sequences(train::read_tokens(command_.texts, model_.tokenizer().tokenizer(), reading),
                                     before, context_);
    train::ScoreOptions options;
    options.plan = plan_, options.batch_tokens = command_.batch_tokens, options.device = model_.decoder().device();
    options.on_progress = [this](double share) { return show(share); };
    return score_sequences(model_.decoder(), sequences, options);
  }

  train::LanguageScore texts_apart() {
    signal::TextFields fields;
    fields.text = command_.field;
    std::vector<models::TokenizedText> texts;
    bool with_segments = false;
    for (const auto& layer : plan_.layers) with_segments |= layer && layer->hierarchy.follows_text();
    for (const signal::TextRecord& record : signal::read_text_records(command_.texts, fields)) {
      texts.push_back(model_.tokenizer().tokenize(record.text, context_, with_segments));
      cut_ += texts.back().was_cut;
      train::Interrupted::throw_if_caught();
    }
    const at::NoGradGuard no_grad;
    train::LanguageScore score;
    const auto batches = models::batches_by_length(texts, command_.batch_tokens);
    for (size_t b = 0; b < batches.size() && show(static_cast<double>(b) / static_cast<double>(batches.size())); ++b) {
      std::vector<const models::TokenizedText*> members;
      for (const size_t i : batches[b]) members.push_back(&texts[i]);
      const models::PackedTexts packed(members, 0, context_, model_.decoder().device());
      const models::TextLoss loss = text_loss(model_.decoder(), packed, plan_);
      score.sum += loss.sum.item<double>();
      score.tokens += loss.tokens;
      score.sequences += static_cast<int64_t>(members.size());
    }
    return score;
  }

  bool show(double share) {
    line_.show("foretelling", share, "");
    return train::InterruptGuard::caught() == 0;
  }

  void print(const train::LanguageScore& score) const {
    if (command_.json) {
      nlohmann::json json = {{"perplexity", score.perplexity()}, {"loss", score.loss()}, {"tokens", score.tokens},
                             {"sequences", score.sequences},     {"context", context_},  {"texts_cut", cut_},
                             {"attention", describe(plan_)}};
      fmt::print("{}\n", json.dump(2));
      return;
    }
    fmt::print("perplexity {:.4f} over {} tokens in {} sequences of at most {}; attention: {}\n", score.perplexity(),
               report::with_commas(score.tokens), report::with_commas(score.sequences), context_, describe(plan_));
    if (cut_ > 0) tell("{} texts were cut off at {} tokens\n", report::with_commas(cut_), context_);
  }

  const PerplexityCommand& command_;
  models::TextModel model_;
  models::AttentionPlan plan_;
  int64_t context_ = 0;
  int64_t cut_ = 0;
  ProgressLine line_;
};

}  // namespace
}  // namespace ramify::cli

extern "C" int ramify_run_perplexity(const ramify::cli::PerplexityCommand& given) {
  ramify::cli::PerplexityCommand command = given;
  ramify::cli::apply_compute_options(command.model.compute);
  const ramify::train::InterruptGuard interrupts;
  return ramify::cli::Foretelling(command).run();
}
