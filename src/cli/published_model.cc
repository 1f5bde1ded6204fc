#include "published_model.h"

#include <filesystem>
#include <stdexcept>

#include "train/device.h"

namespace ramify::cli {

models::TextModel open_model(const ModelOptions& options) {
  if (!std::filesystem::is_directory(options.folder)) {
    throw io::Error(options.folder + ": is no folder; expected that of a published model, with config.json");
  }
  const at::ScalarType dtype = options.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  return models::TextModel(options.folder, {.device = train::open_device(options.compute.device), .dtype = dtype});
}

models::TextModel open_encoder(const ModelOptions& options) {
  models::TextModel model = open_model(options);
  if (!model.config().is_decoder()) return model;
  throw std::invalid_argument(options.folder + ": is a decoder; expected an encoder (bert, roberta)");
}

models::TextModel open_decoder(const ModelOptions& options) {
  models::TextModel model = open_model(options);
  if (model.config().is_decoder()) return model;
  throw std::invalid_argument(options.folder + ": is an encoder; expected a decoder (llama)");
}

models::AttentionPlan plan_of(const ModelOptions& options, int64_t num_layers) {
  if (options.hierarchy.empty() && options.window == 0) return models::AttentionPlan::exact(num_layers);
  models::HierarchicalAttention attention;
  if (!options.hierarchy.empty()) attention.hierarchy = models::TextHierarchy::parse(options.hierarchy);
  attention.tie = options.tie.empty() ? Tie::none : models::parse_tie(options.tie);
  attention.include_self = options.include_self, attention.window = options.window;
  if (attention.window > 0 && attention.tie != Tie::none) {
    throw std::invalid_argument("--window needs --tie none: the tokens of a window look for themselves");
  }
  return models::AttentionPlan::swapped(num_layers, attention, models::parse_layers(options.layers, num_layers));
}

models::AttentionPlan decoder_plan(const ModelOptions& options, bool exact, const models::TextModel& model) {
  if (exact && !options.hierarchy.empty()) throw std::invalid_argument("--exact and --hierarchy exclude each other");
  if (!options.hierarchy.empty()) return plan_of(options, model.num_layers());
  if (!options.tie.empty() || (options.layers != "all" && options.window == 0)) {
    throw std::invalid_argument("--tie and --layers say more of a hierarchy; give one with --hierarchy");
  }
  const models::AttentionPlan trained = models::trained_plan(options.folder);
  if (exact || (options.window > 0 && trained.is_exact())) return plan_of(options, model.num_layers());
  if (options.window > 0) {
    throw std::invalid_argument("--window: the model was trained with " + describe(trained) +
                                "; give a --hierarchy beside the window");
  }
  return trained;
}

std::string describe(const models::AttentionPlan& plan) {
  const std::vector<int64_t> layers = plan.swapped_layers();
  if (layers.empty()) return "exact";
  const models::HierarchicalAttention& first = *plan.layers[static_cast<size_t>(layers[0])];
  std::string text = first.hierarchy.levels.empty() ? "exact"
                                                    : "hierarchical " + first.hierarchy.text() + ", tie " +
                                                          std::string(models::name_of(first.tie));
  if (first.window > 0) text += ", window " + std::to_string(first.window);
  if (layers.size() == plan.layers.size()) return text;
  return text + ", " + std::to_string(layers.size()) + " of " + std::to_string(plan.layers.size()) + " layers";
}

int64_t max_tokens_of(const ModelOptions& options, const models::ModelConfig& config) {
  if (options.max_tokens <= config.max_tokens()) {
    return options.max_tokens == 0 ? config.max_tokens() : options.max_tokens;
  }
  throw std::invalid_argument("--max-tokens " + std::to_string(options.max_tokens) + ": the model takes at most " +
                              std::to_string(config.max_tokens()));
}

}  // namespace ramify::cli
