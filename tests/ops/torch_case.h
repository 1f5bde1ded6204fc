// A case of tests/kernels/attention_cases.h as tensors, and what a call of the public functions makes of it.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/attention_cases.h"
#include "ops/op.h"
#include "ramify/attention.h"

namespace ramify {

// The name in lists of tests.
inline void PrintTo(Implementation implementation, std::ostream* stream) {
  *stream << name_of(implementation);
}

}  // namespace ramify

namespace ramify::testing {

template <class Number>
at::Tensor tensor_of(const std::vector<Number>& values, at::IntArrayRef shape) {
  const auto type = c10::CppTypeToScalarType<Number>::value;
  return at::from_blob(const_cast<Number*>(values.data()), shape, at::TensorOptions(type)).clone();
}

// Whether the fused kernels have a mode.
inline bool applies_to_fused(const AttentionMode& mode) {
  return mode.alpha == 1;
}

// Inputs of a call; positions and position_index are undefined for a case without.
struct TorchCase {
  Forest forest;
  AttentionMode mode;
  at::Tensor q, k, v, positions, position_index, alpha, grad_out, grad_energy;

  AttentionOptions options(Implementation implementation) const {
    AttentionOptions options;
    options.positions = positions, options.position_index = position_index;
    options.scale = kScale;
    options.include_self = mode.include_self;
    options.tie = mode.tie, options.causal = mode.causal, options.window = mode.window;
    options.alpha = alpha_for(implementation);
    options.implementation = implementation;
    return options;
  }

  // The fused kernels and windows take alpha 1 by its absence only.
  at::Tensor alpha_for(Implementation implementation) const {
    return implementation == Implementation::fused || mode.window > 0 ? at::Tensor() : alpha;
  }

  TorchCase to(at::ScalarType dtype) const {
    TorchCase result = *this;
    for (at::Tensor* input : {&result.q, &result.k, &result.v, &result.positions, &result.grad_out}) {
      if (input->defined()) *input = input->to(dtype);
    }
    return result;
  }
};

inline TorchCase torch_case(const AttentionCase& c, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  const AttentionArrays arrays = random_arrays(c, seed);
  const int64_t leaves = c.forest.num_leaves();
  TorchCase result;
  result.forest = c.forest, result.mode = c.mode;
  result.q = tensor_of(arrays.q, {leaves, c.heads, c.dim}).to(dtype);
  result.k = tensor_of(arrays.k, {leaves, c.key_heads, c.dim}).to(dtype);
  result.v = tensor_of(arrays.v, {leaves, c.key_heads, c.value_dim}).to(dtype);
  result.grad_out = tensor_of(arrays.grad_out, {leaves, c.heads, c.value_dim}).to(dtype);
  result.grad_energy = tensor_of(arrays.grad_energy, {c.forest.num_trees(), c.heads});
  result.alpha = tensor_of(arrays.alpha, {static_cast<int64_t>(arrays.alpha.size())});
  if (c.position_dim == 0) return result;
  result.positions = tensor_of(arrays.positions, {c.num_positions, c.heads, c.position_dim}).to(dtype);
  result.position_index = tensor_of(arrays.position_index, {c.forest.num_nodes()});
  return result;
}

// Results, and the gradients of sum(out · grad_out) + sum(energy · grad_energy) over trees that attend to something.
struct Outcome {
  at::Tensor out, energy;
  at::Tensor q, k, v, positions, alpha;  // gradients; the last two undefined for a case without
};

inline at::Tensor leaf_variable(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone().requires_grad_() : tensor;
}

inline Outcome evaluate(TorchCase c, Implementation implementation) {
  c.alpha = c.alpha_for(implementation);
  for (at::Tensor* input : {&c.q, &c.k, &c.v, &c.positions, &c.alpha}) *input = leaf_variable(*input);
  const ForestTensors forest(c.forest);
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  // The op itself gives both results of one pass.
  const auto [out, energies, saved] =
      call_attention(c.q, c.k, c.v, forest.arrays(), forest.plan(c.mode.tie, c.mode.causal), optional(c.positions),
                     optional(c.position_index), optional(c.alpha), kScale, c.mode.include_self, name_of(c.mode.tie),
                     name_of(c.mode.causal), name_of(implementation), /*save=*/true, c.mode.window);
  const at::Tensor finite = energies.masked_fill(energies.isneginf(), 0);
  ((out * c.grad_out).sum() + (finite * c.grad_energy).sum()).backward();
  const auto gradient = [](const at::Tensor& input) { return input.defined() ? input.grad() : at::Tensor(); };
  return {out.detach(),  energies.detach(),     gradient(c.q),    gradient(c.k),
          gradient(c.v), gradient(c.positions), gradient(c.alpha)};
}

// Equal but for rounding, infinities in the same places; relative to the largest finite entry, or to 1.
inline bool near(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-9) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  if (a.isnan().any().item<bool>() || b.isnan().any().item<bool>()) return false;
  if (!a.isinf().equal(b.isinf())) return false;
  const at::Tensor fa = a.masked_fill(a.isinf(), 0), fb = b.masked_fill(b.isinf(), 0);
  return (fa - fb).abs().max().item<double>() <= tolerance * (1 + fb.abs().max().item<double>());
}

}  // namespace ramify::testing
