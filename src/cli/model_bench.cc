// `ramify bench model` with torch: whole passes, exact and swapped in turns, and how much of each is attention.
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "interleaved_timing.h"
#include "model_commands.h"
#include "progress_line.h"
#include "published_model.h"
#include "signal/random.h"
#include "torch_settings.h"

namespace ramify::cli {
namespace {

struct Row {
  int64_t tokens = 0;
  double exact_ms = 0, swapped_ms = 0;                      // whole passes
  double exact_attention_ms = 0, swapped_attention_ms = 0;  // what of it is attention
};

// Passes with one plan, and the attention's part of each.
class TimedPlan {
 public:
  TimedPlan(const models::TextModel& model, const models::PackedTexts& texts, models::AttentionPlan plan)
      : model_(model), texts_(texts), plan_(std::move(plan)) {}

  void run() {
    models::Trace trace{.time_attention = true};
    model_.token_rows(texts_, plan_, &trace);
    attention_ms_.push_back(1000 * trace.attention_seconds);
  }
  double attention_ms() const { return median(attention_ms_); }

 private:
  const models::TextModel& model_;
  const models::PackedTexts& texts_;
  models::AttentionPlan plan_;
  std::vector<double> attention_ms_;
};

Row measure(const ModelBenchCommand& command, const models::TextModel& model, int64_t tokens) {
  signal::Random random(1);
  std::vector<models::TokenizedText> texts(static_cast<size_t>(command.batch));
  std::vector<const models::TokenizedText*> members;
  for (models::TokenizedText& text : texts) {
    for (int64_t i = 0; i < tokens; ++i) {
      text.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(model.config().vocabulary))));
    }
    text.types.assign(text.ids.size(), 0);
    text.structure.tokens = tokens;
    members.push_back(&text);
  }
  const models::PackedTexts packed = model.pack(members);
  TimedPlan exact(model, packed, models::AttentionPlan::exact(model.num_layers()));
  TimedPlan swapped(model, packed, plan_of(command.model, model.num_layers()));
  const std::vector<Contender> contenders = {{"exact", [&] { exact.run(); }}, {"swapped", [&] { swapped.run(); }}};
  ProgressLine line;
  const auto timings = time_interleaved(
      contenders, [&](std::string_view name) { line.show(fmt::format("{} tokens, {}", tokens, name), -1, ""); });
  return {tokens, timings[0].median_ms, timings[1].median_ms, exact.attention_ms(), swapped.attention_ms()};
}

nlohmann::json to_json(const Row& row) {
  return {{"tokens", row.tokens},
          {"exact_ms", row.exact_ms},
          {"swapped_ms", row.swapped_ms},
          {"exact_attention_ms", row.exact_attention_ms},
          {"swapped_attention_ms", row.swapped_attention_ms}};
}

void print_head(const ModelBenchCommand& command, const models::TextModel& model) {
  const models::ModelConfig& config = model.config();
  fmt::print("{}: {} layers, {} wide, {} heads; {} text{} a pass, {}, {} threads\n", models::name_of(config.family),
             config.layers, config.width, config.heads, command.batch, command.batch == 1 ? "" : "s",
             command.model.dtype, at::get_num_threads());
  fmt::print("swapped: {} in layers {}, tie={}. Milliseconds, medians of turns\n\n", command.model.hierarchy,
             command.model.layers, command.model.tie);
  fmt::print("{:>8} {:>11} {:>11} {:>9} | {:>15} {:>15} {:>9} | {:>15}\n", "tokens", "exact", "swapped", "gain",
             "exact attention", "swapped", "gain", "attention share");
}

void print_row(const Row& row, int64_t positions) {
  fmt::print("{:>8} {:>11.2f} {:>11.2f} {:>8.2f}x | {:>15.2f} {:>15.2f} {:>8.2f}x | {:>14.0f}%{}\n", row.tokens,
             row.exact_ms, row.swapped_ms, row.exact_ms / row.swapped_ms, row.exact_attention_ms,
             row.swapped_attention_ms, row.exact_attention_ms / row.swapped_attention_ms,
             100 * row.exact_attention_ms / row.exact_ms, row.tokens > positions ? " *" : "");
  std::fflush(stdout);  // the next row may take minutes
}

int run(const ModelBenchCommand& command) {
  if (command.tokens.empty()) throw std::invalid_argument("bench: tokens is empty; expected numbers, such as 512,8192");
  const models::TextModel model = open_encoder(command.model);
  const models::AttentionPlan plan = plan_of(command.model, model.num_layers());
  for (const auto& layer : plan.layers) {
    if (layer && layer->hierarchy.follows_text()) {
      throw std::invalid_argument(
          "bench: random tokens have no sentences or paragraphs; expected windows, such as 16*");
    }
  }
  const int64_t positions = model.config().max_tokens();
  if (!command.json) print_head(command, model);
  nlohmann::json rows = nlohmann::json::array();
  bool tiled = false;
  for (const int64_t tokens : command.tokens) {
    const Row row = measure(command, model, tokens);
    rows.push_back(to_json(row));
    tiled = tiled || tokens > positions;
    if (!command.json) print_row(row, positions);
  }
  if (command.json) {
    fmt::print("{}\n", nlohmann::json({{"model", model.config().to_json()},
                                       {"hierarchy", command.model.hierarchy},
                                       {"layers", command.model.layers},
                                       {"tie", command.model.tie},
                                       {"batch", command.batch},
                                       {"dtype", command.model.dtype},
                                       {"threads", at::get_num_threads()},
                                       {"rows", rows}})
                           .dump(2));
  } else if (tiled) {
    fmt::print("\n* the model has {} positions; behind them they begin anew, for the time only\n", positions);
  }
  return 0;
}

}  // namespace
}  // namespace ramify::cli

extern "C" int ramify_run_model_bench(const ramify::cli::ModelBenchCommand& given) {
  ramify::cli::ModelBenchCommand command = given;
  ramify::cli::apply_compute_options(command.model.compute);
  return ramify::cli::run(command);
}
