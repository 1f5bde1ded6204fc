#include "train/build_model.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <unordered_map>

#include "io/error.h"
#include "text/word_vectors.h"

namespace ramify::train {
namespace {

nn::Feature feature_of(signal::Feature feature) {
  switch (feature) {
    case signal::Feature::ids:
      return nn::Feature::ids;
    case signal::Feature::numbers:
      return nn::Feature::numbers;
    case signal::Feature::dense:
      break;
  }
  return nn::Feature::dense;
}

// A key says nothing in records that have only one; other domains are there if some field can have them.
std::vector<nn::Domain> domains_of(const signal::Schema& schema, const nn::EncoderConfig& config,
                                   signal::Structure structure) {
  if (!config.positions) return {};
  bool sequence = structure == signal::Structure::flat, grid = false, graph = false;
  for (const signal::Field& field : schema.fields) {
    sequence = sequence || field.kind == signal::Kind::array || field.kind == signal::Kind::text;
    grid = grid || field.kind == signal::Kind::image;
    graph = graph || field.kind == signal::Kind::graph || field.graphs > 0;
  }
  std::vector<nn::Domain> domains;
  if (schema.keys.size() > 1) domains.push_back(nn::Domain::key);
  if (sequence) domains.push_back(nn::Domain::sequence);
  if (grid) domains.push_back(nn::Domain::grid);
  if (graph) domains.push_back(nn::Domain::graph);
  return domains;
}

}  // namespace

std::shared_ptr<nn::Model> build_model(const signal::Schema& schema, const nn::EncoderConfig& config,
                                       const TokenTable& tokens, signal::Structure structure, uint64_t seed) {
  std::vector<nn::Modality> modalities;
  for (const signal::Modality& modality : schema.modalities()) {
    modalities.push_back({.name = modality.name,
                          .feature = feature_of(modality.feature),
                          .size = modality.size,
                          .width = modality.name == "token" ? tokens.width : 0});
  }
  const nn::ModelInputs inputs{.num_keys = static_cast<int64_t>(schema.keys.size()),
                               .graph_features = schema.graph_features,
                               .domains = domains_of(schema, config, structure)};
  at::manual_seed(seed);
  auto model = std::make_shared<nn::Model>(config, std::move(modalities), inputs, schema.num_outputs());
  if (tokens.frozen) {
    model->set_table("token", at::zeros({schema.tokenizer->size(), tokens.width}), /*trainable=*/false);
  }
  return model;
}

at::Tensor read_token_vectors(const std::string& file, const signal::Schema& schema, int64_t& missing) {
  const text::Tokenizer& tokenizer = *schema.tokenizer;
  std::unordered_map<std::string_view, int32_t> ids;
  for (int32_t id = 0; id < tokenizer.size(); ++id) ids.emplace(tokenizer.token(id), id);
  const text::WordVectors vectors =
      text::read_word_vectors(file, [&](std::string_view word) { return ids.contains(word); });
  if (vectors.words.empty()) throw io::Error(file + ": none of its words is in the vocabulary of the data");

  at::Tensor table = at::zeros({tokenizer.size(), vectors.width});
  auto* rows = table.mutable_data_ptr<float>();
  for (size_t w = 0; w < vectors.words.size(); ++w) {
    std::ranges::copy(vectors.vector(w), rows + ids.at(vectors.words[w]) * vectors.width);
  }
  missing = tokenizer.size() - static_cast<int64_t>(vectors.words.size());
  return table;
}

}  // namespace ramify::train
