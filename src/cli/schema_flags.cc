#include "schema_flags.h"

#include "number_checks.h"

namespace ramify::cli {

void add_schema_flags(CLI::App& app, signal::SchemaSettings& settings) {
  // of a value that is said twice the last one counts, so that scripts can be overruled
  const auto add = [&](const char* flag, auto& member, const char* help) {
    return app.add_option(flag, member, help)->take_last()->capture_default_str();
  };
  add("--target", settings.target, "the field to predict, such as label or meta.kind");
  add("--target-of", settings.target_of, "the array whose items have one label each; the target is a list as long");
  add("--task", settings.task, "classification, regression, multilabel or nodes; else by the target's values");
  // one value at a time, so that DATA may follow
  const auto add_list = [&](const char* flag, auto& member, const char* help) {
    app.add_option(flag, member, help)->delimiter(',')->allow_extra_args(false);
  };
  add_list("--fields", settings.fields, "use only these fields, such as title,sections[].text");
  add_list("--ignore", settings.ignore, "leave these fields out");
  add("--schema", settings.schema, "a JSON file that says what fields are: docs/signals.md");
  add("--text-levels", settings.text_levels,
      "how texts are divided: a part of paragraph,sentence,token that ends in token, or text-leaf");
  add("--tokenizer", settings.tokenizer,
      "a published tokenizer (vocab.txt, vocab.json, tokenizer.json, *.model or their folder), not the data's words");
  add("--vocabulary", settings.vocabulary, "most words of a built vocabulary")->check(CLI::Range(2, 10'000'000));
  add("--min-count", settings.min_count, "rarer words are unknown")->check(from_one());
  add("--images", settings.images, "a .tar that image paths are looked up in, not beside the data");
  add("--image-size", settings.image_size, "longest side in pixels; larger images shrink")->check(CLI::Range(1, 8192));
  add("--patch", settings.patch, "pixels a side of a patch")->check(CLI::Range(1, 512));
  add("--max-leaves", settings.max_leaves, "leaves of a record; what follows is cut off")->check(from_one());
  add("--on-bad", settings.on_bad, "what to do with a record that cannot be used: fail, or skip and count it")
      ->check(CLI::IsMember({"fail", "skip"}));
}

}  // namespace ramify::cli
