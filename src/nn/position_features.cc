#include "nn/position_features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "nn/linear.h"
#include "nn/rows.h"

namespace ramify::nn {
namespace {

// Rows brought to length 1; zeros stay zeros.
at::Tensor directions(const at::Tensor& rows) {
  return rows / rows.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-6);
}

}  // namespace

class PositionFeatures::Source : public Module {
 public:
  // [n, width]; `tokens`: the vectors of input.key_tokens
  virtual at::Tensor forward(const PositionInput& input, const at::Tensor& tokens) const = 0;
};

// A vector a key, and one for all keys that are not in the schema. That one is zero, like no position at all, unless
// training meets such keys.
class PositionFeatures::LearnedKeys : public Source {
 public:
  LearnedKeys(int64_t num_keys, int64_t width) {
    at::Tensor table = at::randn({num_keys + 1, width}) / std::sqrt(static_cast<double>(width));
    table.select(0, 0).zero_();
    register_parameter("table", std::move(table));
  }
  at::Tensor forward(const PositionInput& input, const at::Tensor&) const override {
    return at::embedding(parameter("table"), input.keys + 1);
  }
};

// The mean of the vectors of a key's words, brought to the width of positions.
class PositionFeatures::TokenKeys : public Source {
 public:
  TokenKeys(int64_t token_width, int64_t width) {
    projection_ = register_module("projection", std::make_shared<Linear>(token_width, width, Bias::no,
                                                                         1 / std::sqrt(static_cast<double>(width))));
  }
  at::Tensor forward(const PositionInput& input, const at::Tensor& tokens) const override {
    TORCH_CHECK_VALUE(input.key_tokens.defined() && input.key_token_begin.defined() &&
                          input.key_token_begin.numel() == input.keys.numel() + 1,
                      "encoder: keys made of tokens need key_tokens, and key_token_begin with ", input.keys.numel() + 1,
                      " offsets");
    const at::Tensor means =
        group_means(tokens, {at::arange(tokens.size(0), input.key_tokens.options()), input.key_token_begin, {}});
    return projection_->forward(directions(means));
  }

 private:
  std::shared_ptr<Linear> projection_;
};

// cos and sin of position·frequency. The frequencies are random, of all scales from two steps a period to `longest`,
// each with its own slice of that range, and in all directions of the plane where there are two dimensions. Learned,
// they are parameters, and a layer with GELU follows (Li et al. 2021); the layers' projections are its output matrix.
class PositionFeatures::Fourier : public Source {
 public:
  Fourier(Domain domain, Frequencies frequencies, int64_t width)
      : domain_(domain), learned_(frequencies == Frequencies::learned) {
    at::Tensor values = draw(width / 2, domain == Domain::grid);
    if (!learned_) {
      register_buffer("frequencies", std::move(values));
      return;
    }
    register_parameter("frequencies", std::move(values));
    hidden_ = register_module("hidden", std::make_shared<Linear>(width, width, Bias::yes, 1.0));
  }

  at::Tensor forward(const PositionInput& input, const at::Tensor&) const override {
    const at::Tensor frequencies =
        learned_ ? parameter("frequencies") : named_buffers(/*recurse=*/false)["frequencies"];
    const at::Tensor positions = domain_ == Domain::grid ? input.cells : input.places.unsqueeze(1);
    // Phases of far places need more than the 8 bits of lower precision.
    const at::ScalarType exact = frequencies.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor phases = (positions.to(exact).unsqueeze(2) * frequencies.to(exact)).sum(1);
    const auto count = static_cast<double>(frequencies.size(1));
    const at::Tensor waves = at::cat({phases.cos(), phases.sin()}, 1) * (1 / std::sqrt(count));
    const at::Tensor features = waves.to(frequencies.scalar_type());
    if (!learned_) return features;
    return at::gelu(hidden_->forward(features)) * (1 / std::sqrt(kGeluPower * 2 * count));
  }

 private:
  static constexpr double kLongestPlace = 10000, kLongestCell = 1000;
  static constexpr double kGeluPower = 0.425;  // mean square of gelu of a standard normal number

  // [1 or 2, count]
  static at::Tensor draw(int64_t count, bool plane) {
    const double fastest = std::numbers::pi, slowest = 2 * std::numbers::pi / (plane ? kLongestCell : kLongestPlace);
    const at::Tensor slice = (at::arange(count, at::kFloat) + at::rand({count})) / static_cast<double>(count);
    const at::Tensor magnitude = (slice * std::log(slowest / fastest)).exp() * fastest;
    if (!plane) return magnitude.unsqueeze(0);
    const at::Tensor angle = at::rand({count}) * (2 * std::numbers::pi);
    return at::stack({magnitude * angle.cos(), magnitude * angle.sin()});
  }

  Domain domain_;
  bool learned_;
  std::shared_ptr<Linear> hidden_;
};

// A turned direction of the given features: entries of eigenvectors shrink with the graph, directions do not.
class PositionFeatures::Graph : public Source {
 public:
  Graph(int64_t features, int64_t width) {
    projection_ = register_module(
        "projection", std::make_shared<Linear>(features, width, Bias::no, 1 / std::sqrt(static_cast<double>(width))));
  }
  at::Tensor forward(const PositionInput& input, const at::Tensor&) const override {
    return projection_->forward(directions(input.graph));
  }

 private:
  std::shared_ptr<Linear> projection_;
};

void PositionFeatures::add(const char* name, Domain domain, std::shared_ptr<Source> source, int64_t width) {
  kinds_.push_back({name, width});
  domains_.push_back(domain);
  sources_.push_back(register_module(name, std::move(source)));
}

PositionFeatures::PositionFeatures(const EncoderConfig& config, const ModelInputs& inputs, int64_t token_width) {
  const int64_t width = config.position_width;
  const auto occurs = [&](Domain domain) { return std::ranges::find(inputs.domains, domain) != inputs.domains.end(); };
  if (occurs(Domain::key) && config.keys == Keys::learned) {
    add("key", Domain::key, std::make_shared<LearnedKeys>(inputs.num_keys, width), width);
  } else if (occurs(Domain::key)) {
    add("key", Domain::key, std::make_shared<TokenKeys>(token_width, width), width);
  }
  if (occurs(Domain::sequence)) {
    add("sequence", Domain::sequence, std::make_shared<Fourier>(Domain::sequence, config.fourier, width), width);
  }
  if (occurs(Domain::grid)) {
    add("grid", Domain::grid, std::make_shared<Fourier>(Domain::grid, config.fourier, width), width);
  }
  if (occurs(Domain::graph)) {
    TORCH_CHECK_VALUE(inputs.graph_features > 0, "encoder: the domain graph occurs, and graph_features is ",
                      inputs.graph_features, "; expected at least 1");
    add("graph", Domain::graph, std::make_shared<Graph>(inputs.graph_features, width), width);
  }
}

namespace {

constexpr std::array kDomains = {Domain::key, Domain::sequence, Domain::grid, Domain::graph};

const at::Tensor& rows_of(const PositionInput& input, Domain domain) {
  return domain == Domain::key        ? input.keys
         : domain == Domain::sequence ? input.places
         : domain == Domain::grid     ? input.cells
                                      : input.graph;
}

const char* shape_of(Domain domain) {
  return domain == Domain::key        ? "keys [n], int64"
         : domain == Domain::sequence ? "places [n], int64"
         : domain == Domain::grid     ? "cells [n, 2]"
                                      : "graph [n, features]";
}

}  // namespace

LayerPositions PositionFeatures::forward(const Batch& batch, const at::Tensor& tokens) const {
  LayerPositions positions;
  const PositionInput& input = batch.positions;
  if (!input.index.defined()) return positions;
  TORCH_CHECK_VALUE(input.index.dim() == 1 && input.index.size(0) == batch.forest.forest().num_nodes(),
                    "encoder: position index has shape ", input.index.sizes(), "; the forest has ",
                    batch.forest.forest().num_nodes(), " nodes");
  for (const Domain domain : kDomains) {
    const at::Tensor& rows = rows_of(input, domain);
    if (!rows.defined() || rows.size(0) == 0) continue;
    const auto place = std::ranges::find(domains_, domain) - domains_.begin();
    TORCH_CHECK_VALUE(place < static_cast<int64_t>(domains_.size()), "encoder: the batch has positions of a domain (",
                      shape_of(domain), ") that the encoder was not made for");
    const bool is_list = domain == Domain::key || domain == Domain::sequence;
    TORCH_CHECK_VALUE(is_list ? rows.dim() == 1 && rows.scalar_type() == at::kLong : rows.dim() == 2,
                      "encoder: positions have shape ", rows.sizes(), "; expected ", shape_of(domain));
    positions.rows.push_back({static_cast<size_t>(place), sources_[place]->forward(input, tokens)});
  }
  if (!positions.rows.empty()) positions.index = input.index;
  return positions;
}

}  // namespace ramify::nn
