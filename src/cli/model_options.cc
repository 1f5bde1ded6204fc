#include "model_options.h"

namespace ramify::cli {

namespace {

void add_folder_and_compute(CLI::App& app, ModelOptions& model) {
  app.add_option("MODEL", model.folder, "folder of a published model: config.json, model.safetensors, tokenizer files")
      ->required();
  app.add_option("--dtype", model.dtype, "in which the model computes: float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--device", model.compute.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--threads", model.compute.threads, "threads that compute; 0: one a core")->check(CLI::Range(0, 1024));
}

}  // namespace

void add_model_options(CLI::App& app, ModelOptions& model) {
  add_folder_and_compute(app, model);
  app.add_option("--max-tokens", model.max_tokens, "cut texts to so many tokens; 0: as many as the model takes")
      ->check(CLI::NonNegativeNumber);
}

void add_decoder_options(CLI::App& app, ModelOptions& model) {
  add_folder_and_compute(app, model);
  app.add_flag("--allow-extrapolation", model.allow_extrapolation,
               "go on behind the positions that the model was trained with");
}

void add_causal_options(CLI::App& app, ModelOptions& model) {
  model.tie = "";  // none, where nothing else is said
  app.add_option("--hierarchy", model.hierarchy,
                 "attention over this tree, levels from the bottom: windows, such as 2,4,8,16 or 16* [as the model was "
                 "trained]");
  app.add_option("--layers", model.layers, "which layers have it, counted from 0: 7,9,11 or 4-11 or all")
      ->capture_default_str();
  app.add_option("--tie", model.tie, "none (every token looks for itself) or block (causal=prefix: as its window does)")
      ->check(CLI::IsMember({"block", "none"}))
      ->default_str("none");
  app.add_option("--window", model.window,
                 "so many tokens before each are seen one by one; without a hierarchy, no others")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
}

void add_swap_options(CLI::App& app, ModelOptions& model) {
  auto* hierarchy =
      app.add_option("--hierarchy", model.hierarchy,
                     "swap attention for one over this tree, levels from the bottom: windows (2,4,8,16 or "
                     "16*), sentences, paragraphs, alone (nodes below see nothing else)" +
                         std::string(model.hierarchy.empty() ? " [exact attention]" : ""));
  if (!model.hierarchy.empty()) hierarchy->capture_default_str();
  app.add_option("--layers", model.layers, "which layers, counted from 0: 7,9,11 or 4-11 or all")
      ->needs(hierarchy)
      ->capture_default_str();
  app.add_option("--tie", model.tie, "block (the leaves of a node look outside alike) or none (each for itself)")
      ->check(CLI::IsMember({"block", "none"}))
      ->needs(hierarchy)
      ->capture_default_str();
  app.add_flag("--include-self,!--no-include-self", model.include_self,
               "a token also looks at itself, as in exact attention [on]")
      ->needs(hierarchy);
}

}  // namespace ramify::cli
