// A folder with a small random model, as published ones are.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "generators/temporary_folder.h"
#include "models/encoder.h"

namespace ramify::models {

inline ModelConfig small_config(Family family = Family::bert) {
  ModelConfig config;
  config.family = family;
  config.vocabulary = 20;
  config.width = 8;
  config.layers = 3;
  config.heads = config.kv_heads = 2;
  config.head_dim = 4;
  config.inner_width = 16;
  config.positions = 64;
  config.types = 2;
  config.padding = family == Family::roberta ? 1 : 0;
  config.first_position = family == Family::roberta ? 2 : 0;
  config.initializer_range = 0.5;  // so that attention is far from even
  return config;
}

inline NamedTensors with_prefix(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors renamed;
  for (const auto& [name, tensor] : tensors) renamed.emplace_back(prefix + name, tensor);
  return renamed;
}

inline void write_config(const testing::TemporaryFolder& folder, const ModelConfig& config) {
  folder.write("config.json", config.to_json().dump());
}

inline std::shared_ptr<Encoder> write_model(const testing::TemporaryFolder& folder,
                                            const ModelConfig& config = small_config()) {
  auto encoder = random_encoder(config, 1);
  encoder->eval();
  write_config(folder, config);
  save_tensors(folder / "model.safetensors", encoder->published_tensors());
  return encoder;
}

inline TokenizedText random_text(int64_t tokens, uint32_t seed) {
  TokenizedText text;
  for (int64_t i = 0; i < tokens; ++i) {
    seed = seed * 1664525u + 1013904223u;
    text.ids.push_back(static_cast<int32_t>(seed >> 16) % 20);
    text.types.push_back(i > tokens / 2);
  }
  text.structure.tokens = tokens;
  return text;
}

}  // namespace ramify::models
