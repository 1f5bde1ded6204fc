// Feature vectors of positions, domain by domain, before each layer projects them in its own way.
//
// A vector has length 1 at the start, whatever its domain and width. Layers project it with weights of variance
// 1/(position dim of a head), so that the expected inner product of two projected positions is that of their features:
// 1 for the same position, less the farther apart two places are, about 0 for two keys. That is the scale of the scores
// of normalised queries and keys, so positions are heard from the first step and drown nothing.
#pragma once

#include <memory>
#include <vector>

#include "nn/leaf_embedding.h"
#include "ramify/nn/encoder.h"

namespace ramify::nn {

class PositionFeatures : public Module {
 public:
  // `token_width`: of the table of tokens, where keys are made of them.
  PositionFeatures(const EncoderConfig& config, const ModelInputs& inputs, int64_t token_width);

  // The rows of each domain that occurs; `tokens` is looked at only where keys are made of them.
  LayerPositions forward(const Batch& batch, const at::Tensor& tokens) const;

  // Kinds of rows, as layers know them.
  const std::vector<LayerKind>& kinds() const { return kinds_; }

 private:
  class Source;  // of one domain
  class LearnedKeys;
  class TokenKeys;
  class Fourier;
  class Graph;
  void add(const char* name, Domain domain, std::shared_ptr<Source> source, int64_t width);

  std::vector<LayerKind> kinds_;
  std::vector<Domain> domains_;
  std::vector<std::shared_ptr<Source>> sources_;
};

}  // namespace ramify::nn
