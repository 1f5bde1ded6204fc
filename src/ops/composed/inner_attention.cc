// Exact and random-feature attention inside families.
#include "ramify/inner_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "ops/composed/rows.h"

namespace ramify {
namespace {

// scale·q·k + position·position as one inner product: both sides with the positions appended.
at::Tensor with_positions(const at::Tensor& vectors, const at::Tensor& positions) {
  return positions.defined() ? at::cat({vectors, positions}, -1) : vectors;
}

// [F, Q, B]: true where a query may not look.
at::Tensor hidden(const FamilyAttentionInput& input) {
  const at::Tensor numbers = at::arange(input.k.size(2), input.own.options());
  const at::Tensor own = input.own.unsqueeze(-1);
  const at::Tensor masked = input.mask == SiblingMask::others ? numbers == own
                            : input.mask == SiblingMask::left ? numbers >= own
                                                              : numbers <= own;
  return masked.logical_or(input.log_size.isneginf().unsqueeze(1));
}

}  // namespace

at::Tensor family_scores(const FamilyAttentionInput& input) {
  const at::Tensor q = with_positions(input.q * input.scale, input.query_positions);
  const at::Tensor k = with_positions(input.k, input.key_positions);
  const at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) + input.log_size.unsqueeze(1);
  return scores.masked_fill(hidden(input), -INFINITY);
}

at::Tensor weighted_values(const at::Tensor& weights, const FamilyAttentionInput& input) {
  if (input.finite_values) return at::matmul(weights, input.v);
  const at::Tensor broken = input.v.isfinite().logical_not();
  const at::Tensor touched = at::matmul((weights != 0).to(input.v.dtype()), broken.to(input.v.dtype())) > 0;
  return at::matmul(weights, input.v.masked_fill(broken, 0)).masked_fill(touched, NAN);
}

FamilyAttentionOutput ExactAttention::operator()(const FamilyAttentionInput& input) const {
  const at::Tensor scores = family_scores(input);
  at::Tensor shift = scores.detach().amax(-1, /*keepdim=*/true);
  shift = shift.masked_fill(shift.isneginf(), 0);
  const at::Tensor weights = (scores - shift).exp();
  const at::Tensor sum = weights.sum(-1);
  // A row that sees nothing divides by 1 instead of 0: its output is 0 and no gradient is NaN.
  const at::Tensor nothing = sum == 0;
  const at::Tensor divisor = sum.masked_fill(nothing, 1);
  return {weighted_values(weights, input) / divisor.unsqueeze(-1),
          (divisor.log() + shift.squeeze(-1)).masked_fill(nothing, -INFINITY)};
}

FavorAttention::FavorAttention(int64_t num_features, uint64_t seed) : num_features_(num_features), seed_(seed) {
  if (num_features < 1) {
    throw std::invalid_argument("FavorAttention: " + std::to_string(num_features) + " features; expected at least 1");
  }
}

namespace {

// Directions [features, dim], orthogonal in groups of `dim`, with the lengths of Gaussian vectors.
at::Tensor random_directions(int64_t num_features, int64_t dim, uint64_t seed, const at::TensorOptions& options) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> groups;
  for (int64_t have = 0; have < num_features; have += dim) {
    const at::Tensor gaussian = at::randn({dim, dim}, generator, at::TensorOptions().dtype(at::kDouble));
    groups.push_back(std::get<0>(at::linalg_qr(gaussian)).t());
  }
  const at::Tensor lengths =
      at::randn({num_features, dim}, generator, at::TensorOptions().dtype(at::kDouble)).norm(2, {1}, true);
  return (at::cat(groups).narrow(0, 0, num_features) * lengths).to(options);
}

// Logarithms of the positive features whose inner products estimate exp(x·y).
at::Tensor log_features(const at::Tensor& vectors, const at::Tensor& directions) {
  return at::matmul(vectors, directions.t()) - vectors.square().sum(-1, /*keepdim=*/true) / 2;
}

}  // namespace

FamilyAttentionOutput FavorAttention::operator()(const FamilyAttentionInput& input) const {
  const double root = std::sqrt(std::abs(input.scale));
  const at::Tensor q = with_positions(input.q * std::copysign(root, input.scale), input.query_positions);
  const at::Tensor k = with_positions(input.k * root, input.key_positions);
  const at::Tensor directions = random_directions(num_features_, q.size(-1), seed_, q.options());

  const at::Tensor log_q = log_features(q, directions), log_k = log_features(k, directions);
  const at::Tensor shift_q = log_q.detach().amax(-1, /*keepdim=*/true);                  // [H, F, Q, 1]
  const at::Tensor shift_k = log_k.detach().amax({-1, -2}, /*keepdim=*/true);            // [H, F, 1, 1]
  const at::Tensor features_q = (log_q - shift_q).exp();                                 // [H, F, Q, m]
  const at::Tensor features_k = (log_k - shift_k + input.log_size.unsqueeze(-1)).exp();  // [H, F, B, m]

  // The last column of the values is 1, so that numerator and normaliser are one product.
  const at::Tensor values = at::cat({input.v, at::ones_like(input.k.narrow(-1, 0, 1))}, -1);
  at::Tensor sums;  // [H, F, Q, dv + 1]
  if (input.mask == SiblingMask::others) {
    const at::Tensor all = at::matmul(features_q, at::matmul(features_k.transpose(-1, -2), values));
    const at::Tensor own_weight =
        (features_q * composed::pick_children(features_k, input.own)).sum(-1, /*keepdim=*/true);
    sums = all - own_weight * composed::pick_children(values, input.own);
  } else {
    const at::Tensor terms = features_k.unsqueeze(-1) * values.unsqueeze(-2);  // [H, F, B, m, dv + 1]
    const at::Tensor visible =
        input.mask == SiblingMask::left ? composed::sums_before(terms) : composed::sums_before(terms.flip(2)).flip(2);
    sums = at::matmul(features_q.unsqueeze(-2), composed::pick_children(visible, input.own)).squeeze(-2);
  }
  const int64_t value_dim = input.v.size(-1);
  const at::Tensor sum = sums.select(-1, value_dim);
  const at::Tensor nothing = sum <= 0;
  const at::Tensor divisor = sum.masked_fill(nothing, 1);
  const at::Tensor log_sum = divisor.log() + shift_q.squeeze(-1) + shift_k.squeeze(-1) - std::log(num_features_);
  return {(sums.narrow(-1, 0, value_dim) / divisor.unsqueeze(-1)).masked_fill(nothing.unsqueeze(-1), 0),
          log_sum.masked_fill(nothing, -INFINITY)};
}

}  // namespace ramify
