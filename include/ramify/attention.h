// Hierarchical attention over packed leaves, for LibTorch: one differentiable call for any forest.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ramify/forest.h"
#include "ramify/inner_attention.h"
#include "ramify/options.h"

namespace ramify {

// A forest as tensors, ready for the op. Make it once for a forest and use it for all layers, heads and
// steps: the plan that the implementations follow is made at the first use and kept. Copies share it.
class ForestTensors {
 public:
  ForestTensors(const Forest& forest,
                at::Device device = at::kCPU);  // implicit: a Forest can be passed as it is

  const Forest& forest() const;
  at::Device device() const;
  std::vector<at::Tensor> arrays() const;                      // first_child, level_begin, tree_begin, on the CPU
  std::vector<at::Tensor> plan(Tie tie, Causal causal) const;  // as the op takes it

 private:
  struct State;
  std::shared_ptr<State> state_;
};

enum class Implementation {
  automatic,  // the fastest that supports the call
  reference,  // the definition, float64, one scalar at a time
  composed,   // level by level with ordinary torch operations, any device
  fused,      // kernels that walk the forest family by family: CPU; not for float64 and alpha
};

struct AttentionOptions {
  at::Tensor positions;              // [P, H, dp]; undefined: none
  at::Tensor position_index;         // [num_nodes] int64 into positions, -1: none; undefined: place in the family
  std::optional<double> scale;       // 1/sqrt(d)
  std::optional<bool> include_self;  // off, but on (and required) with a causal form
  Tie tie = Tie::block;
  Causal causal = Causal::none;
  int64_t window = 0;  // tie=none: leaves at most this far away are seen one by one, whatever the tree
  at::Tensor alpha;    // one value, or [levels] from the root; 1 is softmax, 2 sparsemax; undefined: 1
  Implementation implementation = Implementation::automatic;
};

// q [T, H, d], k [T, Hkv, d], v [T, Hkv, dv] with T leaves left to right and Hkv dividing H -> [T, H, dv].
// Differentiable in q, k, v, positions and alpha. Throws c10::ValueError or std::invalid_argument, before any
// work, with what was expected and what came.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ForestTensors& forest,
                     const AttentionOptions& options = {});

// Why Implementation::automatic would not take the fused kernels for this call, but the composed implementation; empty
// where it takes them. No work is done.
std::string why_not_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ForestTensors& forest,
                          const AttentionOptions& options = {});

// e(root) of every tree, [num_trees, H]: the mean over leaves of the log-sum-exp of their scores, as far as
// the tree lets rows differ. -inf where a tree has nothing to attend to. Differentiable in q, k, positions
// and alpha.
at::Tensor energy(const at::Tensor& q, const at::Tensor& k, const ForestTensors& forest,
                  const AttentionOptions& options = {});

// The whole matrix, [T, H, T]: row i holds the weights of leaf i. Small forests only (at most 8192 leaves).
at::Tensor attention_matrix(const at::Tensor& q, const at::Tensor& k, const ForestTensors& forest,
                            const AttentionOptions& options = {});

// The attention that `leaf`, or the mean of the leaves of each tree, pays to every node: [num_nodes, H]. The
// mass of a node is the sum over the leaves below it. Linear in the forest; not differentiable.
at::Tensor node_mass(const at::Tensor& q, const at::Tensor& k, const ForestTensors& forest,
                     std::optional<int64_t> leaf = std::nullopt, const AttentionOptions& options = {});

struct AttentionOutput {
  at::Tensor out;     // [T, H, dv]
  at::Tensor energy;  // [num_trees, H], float32 at least
};

// The composed implementation with another attention inside families. Ordinary torch operations,
// differentiated by autograd; options.implementation is not looked at. alpha other than 1 needs exact scores
// and ignores `inner`.
AttentionOutput composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const ForestTensors& forest, const AttentionOptions& options,
                                   const InnerAttention& inner);

}  // namespace ramify
