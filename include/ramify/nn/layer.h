// One layer of the hierarchical transformer encoder: projections, LayerNorm, attention, residual, non-linearity.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ramify/attention.h"
#include "ramify/nn/batch.h"
#include "ramify/nn/config.h"
#include "ramify/nn/module.h"

namespace ramify::nn {

class Linear;
class Projections;

// Leaves of one kind, which have projections of their own.
struct LeafRows {
  size_t kind = 0;    // index into the layer's kinds of leaves
  at::Tensor rows;    // [n, width]
  at::Tensor leaves;  // [n] int64, ascending; undefined: all leaves
};

struct LayerKind {
  std::string name;
  int64_t width = 0;
};

struct PositionRows {
  size_t kind = 0;  // index into the layer's kinds of positions
  at::Tensor rows;  // [n, width]
};

struct LayerPositions {
  std::vector<PositionRows> rows;  // numbered through
  at::Tensor index;                // [num_nodes], -1: none; undefined: no positions
};

class Layer : public Module {
 public:
  // `leaves` and `positions`: the kinds of rows that may come, each with projections of its own.
  Layer(const LayerConfig& config, Activation activation, std::vector<LayerKind> leaves,
        std::vector<LayerKind> positions);

  // [T, config.width]: one row a leaf of the forest. Matrix products and attention run in `dtype`; Undefined: in that
  // of the parameters.
  at::Tensor forward(const ForestTensors& forest, const std::vector<LeafRows>& leaves, const LayerPositions& positions,
                     at::ScalarType dtype = at::ScalarType::Undefined) const;

  // The attention that every node receives, the mean over heads and over the leaves of its tree: [num_nodes].
  at::Tensor node_mass(const ForestTensors& forest, const std::vector<LeafRows>& leaves,
                       const LayerPositions& positions) const;

  // The share of pairs of leaves of a tree whose weight is exactly 0, the mean over heads. A leaf with itself is a pair
  // only with include_self. None without such pairs, or without attention.
  std::optional<double> zero_weights(const ForestTensors& forest, const std::vector<LeafRows>& leaves,
                                     const LayerPositions& positions) const;

  const LayerConfig& config() const { return config_; }

 private:
  struct Heads;  // queries, keys and values
  Heads project(const std::vector<LeafRows>& leaves, at::ScalarType dtype) const;
  at::Tensor normalized(const std::string& norm, const at::Tensor& rows) const;
  AttentionOptions options(const ForestTensors& forest, const LayerPositions& positions, at::ScalarType dtype) const;
  at::Tensor alpha(const ForestTensors& forest) const;
  at::Tensor mixed(const Heads& heads, const ForestTensors& forest, const LayerPositions& positions,
                   at::ScalarType dtype) const;

  LayerConfig config_;
  Activation activation_;
  std::vector<std::shared_ptr<Projections>> leaves_;
  std::vector<std::shared_ptr<Linear>> positions_;
  std::shared_ptr<Linear> output_;
};

}  // namespace ramify::nn
