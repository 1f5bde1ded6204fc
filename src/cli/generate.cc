// `ramify generate`: the options. The work needs torch and is in generate_text.cc.
#include <memory>

#include "commands.h"
#include "exit_status.h"
#include "generation_commands.h"
#include "model_options.h"
#include "torch_library.h"

namespace ramify::cli {

void add_generate(CLI::App& app) {
  auto* generate = app.add_subcommand("generate", "Write text with a published decoder, token by token");
  const auto command = std::make_shared<GenerateCommand>();
  add_decoder_options(*generate, command->model);
  auto* prompt =
      generate->add_option("--prompt", command->prompt, "what comes first [the model's beginning of a text]");
  generate->add_option("--prompt-file", command->prompt_file, "the same from a file; - for standard input")
      ->excludes(prompt);
  generate
      ->add_option("--cache", command->cache,
                   "kv: every key and value is kept; hierarchical: O(b log N) of them, over windows")
      ->check(CLI::IsMember({"kv", "hierarchical"}));
  add_causal_options(*generate, command->model);
  generate->add_option(
      "--prompt-hierarchy", command->prompt_hierarchy,
      "the prompt's own attention is over this tree (windows, sentences, paragraphs); what follows looks at "
      "every token of it. With --cache kv");
  generate
      ->add_option("--max-tokens", command->max_tokens, "most tokens to write; 0: as many as the model has positions")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  generate->add_option("--temperature", command->temperature, "0: always the likeliest token; 1: as the model says")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  generate->add_option("--top-p", command->top_p, "draw only among the likeliest tokens with so much probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  generate->add_option("--seed", command->seed, "of what is drawn")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 62))
      ->capture_default_str();
  generate->add_option("--samples", command->samples, "so many texts, each with the next seed")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  generate->add_flag("--ignore-end", command->ignore_end, "go on where the model ends the text");
  generate->add_flag("--json", command->json, "a line of JSON a text, with speed and bytes of the cache");
  generate->footer(
      "Examples:\n"
      "  ramify generate models/stories15m --prompt \"Once upon a time\"\n"
      "  ramify generate models/stories15m --prompt \"Once upon a time\" --cache hierarchical --window 32\n"
      "  ramify generate models/stories15m --temperature 0.9 --top-p 0.95 --seed 7 --samples 3 --json");
  generate->callback([command, prompt] {
    command->has_prompt = prompt->count() > 0;
    throw_exit_status(torch_function<RunGenerate>(kGenerateFunction)(*command));
  });
}

}  // namespace ramify::cli
