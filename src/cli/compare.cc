// `ramify compare`: the options. The work needs torch and is in compare_variants.cc.
#include <memory>

#include "commands.h"
#include "exit_status.h"
#include "model_options.h"
#include "torch_library.h"

namespace ramify::cli {

void add_compare(CLI::App& app) {
  auto* compare = app.add_subcommand("compare", "See what swapped attention costs a published model, and gains");
  const auto command = std::make_shared<CompareCommand>();
  add_model_options(*compare, command->model);
  compare->add_option("DATA", command->data, "labelled texts: .jsonl or .jsonl.zst files, - for standard input")
      ->required();
  compare->add_option("--target", command->fields.label, "where the label of a record is")->required();
  compare->add_option("--field", command->fields.text, "where the text of a record is")->capture_default_str();
  compare->add_option("--second-field", command->fields.second, "where the second text is, for pairs of texts");
  compare->add_option("--test", command->test, "texts to score; without them DATA is cross-validated")
      ->allow_extra_args(false);
  compare
      ->add_option("--variant", command->variants,
                   "HIERARCHY[:LAYERS[:TIE]], such as 2,4,8,16:7,9,11:none; may be given again [a few]")
      ->allow_extra_args(false);
  compare->add_flag("--ablation", command->ablation,
                    "the paper's: four hierarchies, every other layer from each layer on");
  compare->add_flag("--include-self,!--no-include-self", command->model.include_self,
                    "a token also looks at itself, as in exact attention [on]");
  compare->add_option("--pooling", command->pooling, "mean of the tokens or cls (the first token)")
      ->check(CLI::IsMember({"mean", "cls"}))
      ->capture_default_str();
  compare->add_option("--limit", command->limit, "use so many texts of DATA, drawn at random; 0: all")
      ->check(CLI::NonNegativeNumber);
  compare->add_option("--limit-test", command->limit_test, "the same of the test part")->check(CLI::NonNegativeNumber);
  compare->add_option("--seed", command->seed, "of the drawing")->capture_default_str();
  compare->add_option("--folds", command->folds, "parts of the cross-validation")
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  compare->add_option("--drift-texts", command->drift_texts, "texts whose layers and rows of attention are compared")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  compare->add_option("--batch-tokens", command->batch_tokens, "most tokens in a batch")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  compare->add_option("--json", command->json, "file for all figures; - for standard output, without the table");
  compare->add_option("--html", command->html, "file for a page with the table and plots");
  compare->footer(
      "Examples:\n"
      "  ramify compare models/gte-small reviews.jsonl --target label --limit 1000\n"
      "  ramify compare models/gte-small train.jsonl --test test.jsonl --target label \\\n"
      "      --variant 2,4,8,16:7,9,11 --variant sentences,16*:7,9,11:none --html swap.html\n"
      "Layers are counted from 0.");
  compare->callback([command] { throw_exit_status(torch_function<RunCompare>(kCompareFunction)(*command)); });
}

}  // namespace ramify::cli
