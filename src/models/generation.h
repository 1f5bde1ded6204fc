// Tokens one after the other: a prompt is read into a cache, then each token is chosen and read in its turn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/decoder.h"
#include "models/sampler.h"

namespace ramify::models {

struct GenerationOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler;
  std::vector<int32_t> ends;  // tokens that end a text; they are not given
};

struct Generation {
  enum class End { text, length, stopped };  // a token that ends texts, max_tokens, or the caller
  End end = End::length;
  int64_t tokens = 0;
  double seconds = 0;
};

// Reads the prompt in parts, so that a long one needs no matrix of all its pairs. `row` of its last token.
// on_part() is called before each; what it throws is thrown.
at::Tensor read_in_parts(
    const Decoder& decoder, std::span<const int32_t> prompt, DecoderCache& cache,
    const std::function<void()>& on_part = [] {});

// `row`: what the decoder gave for the last token that the cache has. on_token(id) returns whether to go on.
Generation generate(const Decoder& decoder, at::Tensor row, DecoderCache& cache, const GenerationOptions& options,
                    const std::function<bool(int32_t)>& on_token);

}  // namespace ramify::models
