// The network that fits a schema, and the vectors that its tokens begin with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ramify/nn/model.h"
#include "signal/batch.h"
#include "signal/schema.h"

namespace ramify::train {

// How the vectors of tokens are made and whether they learn; part of a run's config, as a model cannot be rebuilt
// without it.
struct TokenTable {
  int64_t width = 0;  // 0: as the config says
  bool frozen = false;
};

// Parameters are drawn from `seed`. Throws std::invalid_argument for a config that does not fit the schema.
std::shared_ptr<nn::Model> build_model(const signal::Schema& schema, const nn::EncoderConfig& config,
                                       const TokenTable& tokens, signal::Structure structure, uint64_t seed);

// The vectors of `file` (the ordinary text format) for the tokens of the schema, [tokens, width]; zeros for those that
// have none. Adds to `missing` how many those are. io::Error if none is found.
at::Tensor read_token_vectors(const std::string& file, const signal::Schema& schema, int64_t& missing);

}  // namespace ramify::train
