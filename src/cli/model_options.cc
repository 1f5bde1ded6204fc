#include "model_options.h"

namespace ramify::cli {

void add_model_options(CLI::App& app, ModelOptions& model) {
  app.add_option("MODEL", model.folder, "folder of a published model: config.json, model.safetensors, tokenizer files")
      ->required();
  app.add_option("--dtype", model.dtype, "in which the model computes: float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--max-tokens", model.max_tokens, "cut texts to so many tokens; 0: as many as the model takes")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", model.compute.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--threads", model.compute.threads, "threads that compute; 0: one a core")->check(CLI::Range(0, 1024));
}

void add_swap_options(CLI::App& app, ModelOptions& model) {
  auto* hierarchy =
      app.add_option("--hierarchy", model.hierarchy,
                     "swap attention for one over this tree, levels from the bottom: windows (2,4,8,16 or "
                     "16*), sentences, paragraphs" +
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
