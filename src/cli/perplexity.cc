// `ramify perplexity`: the options. The work needs torch and is in perplexity_of_texts.cc.
#include <memory>

#include "commands.h"
#include "exit_status.h"
#include "generation_commands.h"
#include "model_options.h"
#include "torch_library.h"

namespace ramify::cli {

void add_perplexity(CLI::App& app) {
  auto* perplexity = app.add_subcommand("perplexity", "How well a decoder foretells texts, with any attention");
  const auto command = std::make_shared<PerplexityCommand>();
  add_decoder_options(*perplexity, command->model);
  perplexity
      ->add_option("TEXT", command->texts,
                   "running text: .txt, .txt.zst, .jsonl or .jsonl.zst files, - for standard input")
      ->required();
  perplexity->add_flag("--separate", command->separate, "every record, or line, is a text of its own");
  perplexity->add_option("--field", command->field, "where the text of a JSON record is")->capture_default_str();
  perplexity->add_option("--context", command->context, "tokens of a sequence; 0: as many as the model has positions")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  add_causal_options(*perplexity, command->model);
  perplexity->add_flag("--exact", command->exact, "exact attention, also in a model that was trained with another");
  perplexity->add_option("--batch-tokens", command->batch_tokens, "most tokens in a batch")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  perplexity->add_flag("--json", command->json, "print JSON");
  perplexity->footer(
      "Examples:\n"
      "  ramify perplexity models/stories15m stories.txt\n"
      "  ramify perplexity models/stories15m stories.jsonl --separate --hierarchy 16* --window 32\n"
      "  ramify perplexity runs/lm test.txt --context 4096 --json\n"
      "Counted is every token but the first of a sequence. exp(mean negative log likelihood), so 1 is the best.");
  perplexity->callback([command] { throw_exit_status(torch_function<RunPerplexity>(kPerplexityFunction)(*command)); });
}

}  // namespace ramify::cli
