#include "models/language_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

namespace ramify::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Gradients {
  at::Tensor rows, weight;  // of the sum
};

// `gradients`: also made, in tensors that are there.
at::Tensor sum_over_chunks(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& targets,
                           const ChunkOptions& options, Gradients* gradients) {
  const at::ScalarType exact = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::ScalarType product =
      options.product_dtype == at::ScalarType::Undefined ? rows.scalar_type() : options.product_dtype;
  const at::Tensor words = weight.to(product);
  at::Tensor sum = at::zeros({}, rows.options().dtype(at::kDouble));
  const int64_t step = std::max<int64_t>(1, options.logits / std::max<int64_t>(1, weight.size(0)));
  for (int64_t begin = 0; begin < rows.size(0); begin += step) {
    const int64_t count = std::min(step, rows.size(0) - begin);
    const at::Tensor some = rows.narrow(0, begin, count).to(product);
    const at::Tensor target = targets.narrow(0, begin, count).unsqueeze(1);
    at::Tensor logits = at::linear(some, words).to(exact);
    const at::Tensor mass = at::logsumexp(logits, 1, /*keepdim=*/true);
    sum += (mass - logits.gather(1, target)).sum(at::kDouble);
    if (!gradients) continue;
    logits.sub_(mass).exp_();  // the softmax; less one at the target it is the gradient of the logits
    logits.scatter_add_(1, target, at::ones({1, 1}, logits.options()).neg_().expand({count, 1}));
    const at::Tensor change = logits.to(product);
    gradients->rows.narrow(0, begin, count).copy_(at::mm(change, words));
    gradients->weight.add_(at::mm(change.t(), some));
  }
  return sum;
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows, const at::Tensor& weight,
                            const at::Tensor& targets, const ChunkOptions& options) {
    Gradients gradients{.rows = at::empty_like(rows), .weight = at::zeros_like(weight)};
    at::Tensor sum = sum_over_chunks(rows, weight, targets, options, &gradients);
    context->save_for_backward({gradients.rows, gradients.weight});
    return sum;
  }
  static variable_list backward(AutogradContext* context, const variable_list& given) {
    const variable_list saved = context->get_saved_variables();
    const auto scaled = [&](const at::Tensor& gradient) { return gradient * given[0].to(gradient.scalar_type()); };
    return {scaled(saved[0]), scaled(saved[1]), at::Tensor(), at::Tensor()};
  }
};

// Numbers of the tokens that have one behind them in their text.
at::Tensor tokens_before_others(const PackedTexts& texts) {
  at::Tensor places = at::empty({texts.num_tokens()}, at::dtype(at::kLong));
  auto* next = places.mutable_data_ptr<int64_t>();
  const auto* first = next;
  for (int64_t i = 0; i < texts.num_texts(); ++i) {
    const int64_t begin = texts.begin()[static_cast<size_t>(i)], end = texts.begin()[static_cast<size_t>(i) + 1];
    for (int64_t token = begin; token + 1 < end; ++token) *next++ = token;
  }
  return places.narrow(0, 0, next - first).to(texts.ids().device());
}

}  // namespace

at::Tensor chunked_cross_entropy(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& targets,
                                 const ChunkOptions& options) {
  const bool learns = at::GradMode::is_enabled() && (rows.requires_grad() || weight.requires_grad());
  if (learns) return CrossEntropy::apply(rows, weight, targets, options);
  const at::NoGradGuard no_grad;
  return sum_over_chunks(rows, weight, targets, options, nullptr);
}

TextLoss text_loss(const Decoder& decoder, const PackedTexts& texts, const AttentionPlan& plan) {
  const at::Tensor places = tokens_before_others(texts);
  const at::Tensor rows = decoder.forward(texts, plan).index_select(0, places);
  return {.sum = chunked_cross_entropy(rows, decoder.output_weight(), texts.ids().index_select(0, places + 1),
                                       {.product_dtype = decoder.compute_dtype()}),
          .tokens = places.size(0)};
}

}  // namespace ramify::models
