// `ramify generate` with torch: text to standard output as it comes, what it took to standard error.
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "generation_commands.h"
#include "io/input_file.h"
#include "models/generation.h"
#include "notes.h"
#include "published_model.h"
#include "report/html.h"
#include "text/detokenizer.h"
#include "text/utf8.h"
#include "torch_settings.h"
#include "train/interrupt.h"

namespace ramify::cli {
namespace {

constexpr size_t kLongestPrompt = size_t{1} << 30;

std::string read_whole(const std::string& path) {
  io::InputFile file(path);
  std::string text;
  std::vector<std::byte> part(1 << 16);
  while (const size_t count = file.read(part)) {
    text.append(reinterpret_cast<const char*>(part.data()), count);
    if (text.size() > kLongestPrompt) throw io::Error(file.name() + ": is longer than 1 GiB; no prompt is");
  }
  return text;
}

void put(const std::string& text) {
  if (text.empty()) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw io::Error("standard output: cannot write");
  }
}

models::AttentionPlan cache_plan(const GenerateCommand& command, const models::TextModel& model) {
  ModelOptions options = command.model;
  const bool has_tree = !command.prompt_hierarchy.empty();
  if (has_tree && (!options.hierarchy.empty() || command.cache == "hierarchical")) {
    throw std::invalid_argument("--prompt-hierarchy is for --cache kv; --hierarchy is the prompt's, too");
  }
  if (command.cache == "kv" && !options.hierarchy.empty()) {
    throw std::invalid_argument("--hierarchy needs --cache hierarchical");
  }
  if (has_tree) options.tie = "", options.layers = "all";  // the prompt's
  const bool says_nothing = options.hierarchy.empty() && options.tie.empty() && options.window == 0;
  if (command.cache == "hierarchical" && options.hierarchy.empty() &&
      !(says_nothing && !models::trained_plan(options.folder).is_exact())) {
    options.hierarchy = "16*";
  }
  return decoder_plan(options, command.cache == "kv" || has_tree, model);
}

class Writing {
 public:
  explicit Writing(const GenerateCommand& command)
      : command_(command),
        model_(open_decoder(command.model)),
        plan_(cache_plan(command, model_)),
        cache_(model_.config(), plan_) {
    if (!std::isfinite(command.temperature) || !std::isfinite(command.top_p)) {
      throw std::invalid_argument("--temperature and --top-p: expected numbers");
    }
    read_prompt_text();
    const int64_t room = model_.config().max_tokens() - static_cast<int64_t>(prompt_.ids.size());
    max_tokens_ = command.max_tokens > 0 ? command.max_tokens : room;
    if (command.model.allow_extrapolation) {
      if (max_tokens_ <= 0) throw std::invalid_argument("--max-tokens: say how many, behind the model's positions");
    } else if (max_tokens_ > room || room <= 0) {
      throw std::invalid_argument(fmt::format(
          "the prompt has {} tokens, {} more are asked for, and the model has {} positions; ask for fewer, or add "
          "--allow-extrapolation",
          prompt_.ids.size(), command.max_tokens, model_.config().max_tokens()));
    }
    if (!command.ignore_end) options_.ends = model_.tokenizer().special().bounds().ends;
  }

  int run() {
    try {
      for (int64_t i = 0; i < command_.samples && train::InterruptGuard::caught() == 0; ++i) write(i);
    } catch (const train::Interrupted&) {
      tell("interrupted while the prompt was read\n");
    }
    return train::InterruptGuard::caught() == 0 ? 0 : interrupted_status();
  }

 private:
  void read_prompt_text() {
    const bool is_given = command_.has_prompt || !command_.prompt_file.empty();
    text_ = command_.prompt_file.empty() ? command_.prompt : read_whole(command_.prompt_file);
    if (is_given && text_.empty())
      throw std::invalid_argument("the prompt is empty; expected text, or no prompt at all");
    if (!text::is_valid_utf8(text_)) throw std::invalid_argument("the prompt is not UTF-8");
    const auto& bounds = model_.tokenizer().special().bounds();
    if (!is_given) {
      if (!bounds.beginning)
        throw std::invalid_argument("the model has no token that begins a text; give it a --prompt");
      prompt_.ids = {*bounds.beginning}, prompt_.types = {0};
      prompt_.structure = {1, {0}, {0}};
    } else {
      prompt_ = model_.tokenizer().tokenize(text_, text::SpecialTokens::kNoLimit, !command_.prompt_hierarchy.empty());
      // a text that is to go on has not ended
      while (prompt_.ids.size() > 1 && std::ranges::find(bounds.ends, prompt_.ids.back()) != bounds.ends.end()) {
        prompt_.ids.pop_back(), prompt_.types.pop_back();
        --prompt_.structure.tokens;
      }
    }
    if (prompt_.ids.empty()) throw std::invalid_argument("the prompt has no tokens");
    for (const int32_t id : prompt_.ids) {
      if (id >= model_.config().vocabulary) throw io::Error("the tokenizer has tokens that the model does not");
    }
  }

  // The cache after the prompt; the same for all samples.
  void read_prompt() {
    const auto began = std::chrono::steady_clock::now();
    const at::NoGradGuard no_grad;
    if (command_.prompt_hierarchy.empty()) {
      row_ = models::read_in_parts(model_.decoder(), prompt_.ids, cache_, train::Interrupted::throw_if_caught);
    } else {
      const models::TokenizedText* one[] = {&prompt_};
      const models::PackedTexts packed(one, 0, static_cast<int64_t>(prompt_.ids.size()), model_.decoder().device());
      models::HierarchicalAttention attention = {.hierarchy = models::TextHierarchy::parse(command_.prompt_hierarchy)};
      attention.tie = command_.model.tie.empty() ? Tie::none : models::parse_tie(command_.model.tie);
      const auto plan = models::AttentionPlan::swapped(
          model_.num_layers(), attention, models::parse_layers(command_.model.layers, model_.num_layers()));
      row_ = model_.decoder().read_prompt(packed, plan, cache_)[-1];
    }
    prompt_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  void write(int64_t sample) {
    if (cache_.tokens() == 0) read_prompt();
    models::DecoderCache cache(cache_);
    options_.max_tokens = max_tokens_;
    options_.sampler = {command_.temperature, command_.top_p, static_cast<uint64_t>(command_.seed + sample)};
    text::Detokenizer detokenizer(model_.tokenizer().tokenizer());
    for (const int32_t id : prompt_.ids) detokenizer.next(id);
    // What it still holds back of the prompt (a newline, say) comes with the first token, and was shown already.
    std::string held = text::Detokenizer(detokenizer).finish();
    std::string written;
    const auto give = [&](std::string part) {
      if (!part.empty()) {
        if (part.starts_with(held)) part.erase(0, held.size());
        held.clear();
      }
      written += part;
      if (!command_.json) put(part);
    };
    if (!command_.json) put((sample > 0 ? "\n" : "") + text_);
    models::Generation done = generate(model_.decoder(), row_, cache, options_, [&](int32_t id) {
      if (id >= model_.tokenizer().tokenizer().size())
        throw io::Error("the model gives a token that the tokenizer does not have");
      give(detokenizer.next(id));
      return train::InterruptGuard::caught() == 0;
    });
    give(detokenizer.finish());
    if (!command_.json) put("\n");
    report(done, cache.bytes(), written);
  }

  void report(const models::Generation& done, int64_t bytes, const std::string& written) const {
    const double speed = done.seconds > 0 ? static_cast<double>(done.tokens) / done.seconds : 0;
    if (!command_.json) {
      tell("{} tokens, {:.1f} tokens/s; prompt of {} in {:.3f} s; cache {} ({}){}\n", done.tokens, speed,
           prompt_.ids.size(), prompt_seconds_, report::bytes_text(static_cast<double>(bytes)), cache_text(),
           done.end == models::Generation::End::stopped ? "; interrupted" : "");
      return;
    }
    const char* end = done.end == models::Generation::End::text     ? "end of text"
                      : done.end == models::Generation::End::length ? "length"
                                                                    : "interrupted";
    const nlohmann::json line = {{"prompt", text_},
                                 {"text", written},
                                 {"tokens", done.tokens},
                                 {"end", end},
                                 {"tokens_per_second", speed},
                                 {"prompt_tokens", prompt_.ids.size()},
                                 {"prompt_seconds", prompt_seconds_},
                                 {"cache", cache_text()},
                                 {"cache_bytes", bytes},
                                 {"seed", options_.sampler.seed}};
    put(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

  std::string cache_text() const { return plan_.is_exact() ? "kv" : describe(plan_); }

  const GenerateCommand& command_;
  models::TextModel model_;
  models::AttentionPlan plan_;
  models::DecoderCache cache_;  // after the prompt
  std::string text_;
  models::TokenizedText prompt_;
  int64_t max_tokens_ = 0;
  models::GenerationOptions options_;
  at::Tensor row_;
  double prompt_seconds_ = 0;
};

}  // namespace
}  // namespace ramify::cli

extern "C" int ramify_run_generate(const ramify::cli::GenerateCommand& given) {
  ramify::cli::GenerateCommand command = given;
  ramify::cli::apply_compute_options(command.model.compute);
  const ramify::train::InterruptGuard interrupts;
  try {
    return ramify::cli::Writing(command).run();
  } catch (const c10::ValueError& error) {
    throw std::invalid_argument(error.what_without_backtrace());
  }
}
