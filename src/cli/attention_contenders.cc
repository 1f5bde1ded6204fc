#include "attention_contenders.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>

#include "ramify/attention.h"
#include "ramify/builders.h"

namespace ramify::cli {
namespace {

struct Inputs {
  at::Tensor q, k, v;
  at::Tensor grad_out;  // undefined: forward only
};

at::ScalarType dtype_of(const std::string& name) {
  return name == "float32" ? at::kFloat : name == "bfloat16" ? at::kBFloat16 : at::kHalf;
}

Inputs packed_inputs(const AttentionBench& bench, int64_t tokens) {
  at::manual_seed(0);
  const auto random = [&](int64_t heads) {
    return at::randn({tokens, heads, bench.dim}, at::TensorOptions().dtype(dtype_of(bench.dtype)));
  };
  Inputs inputs = {random(bench.heads), random(bench.key_heads), random(bench.key_heads), {}};
  if (bench.pass == Pass::forward) return inputs;
  inputs.grad_out = random(bench.heads);
  for (const at::Tensor& input : {inputs.q, inputs.k, inputs.v}) input.requires_grad_();
  return inputs;
}

// [T, H, d] -> contiguous [1, H, T, d]
Inputs head_by_head(const Inputs& packed) {
  const auto moved = [&](const at::Tensor& x) {
    if (!x.defined()) return x;
    return x.detach().transpose(0, 1).unsqueeze(0).contiguous().requires_grad_(x.requires_grad());
  };
  return {moved(packed.q), moved(packed.k), moved(packed.v), moved(packed.grad_out)};
}

// The forward function, followed by backward where there is something to go back from.
template <class Forward>
std::function<void()> pass(const Inputs& inputs, Forward forward) {
  return [inputs, forward] {
    const at::Tensor out = forward(inputs);
    if (inputs.grad_out.defined()) {
      torch::autograd::grad({out}, {inputs.q, inputs.k, inputs.v}, {inputs.grad_out});
    }
  };
}

AttentionOptions options_of(const AttentionBench& bench) {
  AttentionOptions options;
  options.tie = bench.tie;
  options.causal = bench.causal;
  options.window = bench.window;
  return options;
}

std::function<void()> hierarchical(const AttentionBench& bench, const Inputs& inputs, const ForestTensors& forest,
                                   Implementation implementation) {
  AttentionOptions options = options_of(bench);
  options.implementation = implementation;
  return pass(inputs, [=](const Inputs& x) { return attention(x.q, x.k, x.v, forest, options); });
}

std::function<void()> softmax(const AttentionBench& bench, const Inputs& packed) {
  const bool causal = bench.causal != Causal::none, grouped = bench.key_heads != bench.heads;
  return pass(head_by_head(packed), [=](const Inputs& x) {
    return at::scaled_dot_product_attention(x.q, x.k, x.v, /*attn_mask=*/{}, /*dropout_p=*/0, causal,
                                            /*scale=*/std::nullopt, /*enable_gqa=*/grouped);
  });
}

}  // namespace

Forest bench_forest(const AttentionBench& bench, int64_t tokens) {
  return windows(std::vector<int64_t>{tokens}, Branching::parse(bench.hierarchy));
}

std::string why_ours_is_not_fused(const AttentionBench& bench) {
  const Inputs inputs = packed_inputs(bench, 1);
  return why_not_fused(inputs.q, inputs.k, inputs.v, bench_forest(bench, 1), options_of(bench));
}

std::vector<Contender> attention_contenders(const AttentionBench& bench, const Forest& forest) {
  const Inputs inputs = packed_inputs(bench, forest.num_leaves());
  const ForestTensors tensors(forest);
  tensors.plan(bench.tie, bench.causal);
  std::vector<Contender> contenders = {{"ours", hierarchical(bench, inputs, tensors, Implementation::automatic)}};
  for (const std::string& peer : bench.peers) {
    contenders.push_back({peer, peer == "sdpa" ? softmax(bench, inputs)
                                               : hierarchical(bench, inputs, tensors, Implementation::composed)});
  }
  return contenders;
}

}  // namespace ramify::cli
