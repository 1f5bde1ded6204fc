#include "models/exact_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace ramify::models {
namespace {

// [n·L, H, d] -> [n, H, L, d]
at::Tensor by_head(const at::Tensor& rows, int64_t texts) {
  return rows.view({texts, rows.size(0) / texts, rows.size(1), rows.size(2)}).transpose(1, 2);
}

// Texts of one length. `is_token` [texts, 1, 1, length]: where it is false there is nothing to look at.
at::Tensor equal_lengths(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t texts,
                         const ExactOptions& options, const std::optional<at::Tensor>& is_token = {}) {
  const bool is_causal = options.mask == Mask::causal;
  std::optional<at::Tensor> seen = is_token;
  if (options.window || (is_causal && is_token)) {
    const at::Tensor place = at::arange(q.size(0) / texts, q.options().dtype(at::kLong));
    const at::Tensor back = place.unsqueeze(1) - place;
    at::Tensor band = is_causal ? back >= 0 : back >= -*options.window;
    if (options.window) band = band & (back <= *options.window);
    seen = seen ? *seen & band : band;
  }
  const at::Tensor out = at::scaled_dot_product_attention(by_head(q, texts), by_head(k, texts), by_head(v, texts), seen,
                                                          options.dropout, is_causal && !seen);
  return out.transpose(1, 2).reshape({q.size(0), q.size(1), v.size(2)});
}

}  // namespace

at::Tensor padded_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PackedRows& texts,
                            const ExactOptions& options) {
  const PaddedRows& rows = texts.padded(q.device());
  const auto padded = [&](const at::Tensor& given) {
    return at::zeros({rows.is_token.numel(), given.size(1), given.size(2)}, given.options())
        .index_copy(0, rows.place, given);
  };
  return equal_lengths(padded(q), padded(k), padded(v), texts.num_texts(), options, rows.is_token)
      .index_select(0, rows.place);
}

at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PackedRows& texts,
                           const ExactOptions& options) {
  if (k.size(1) != q.size(1)) {  // groups of heads that share keys and values
    const int64_t group = q.size(1) / k.size(1);
    return exact_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), texts, options);
  }
  if (q.size(0) == 0) return q;
  if (texts.have_one_length()) return equal_lengths(q, k, v, texts.num_texts(), options);
  if (q.is_cuda()) return padded_attention(q, k, v, texts, options);
  std::vector<at::Tensor> outputs;
  for (int64_t i = 0; i < texts.num_texts(); ++i) {
    const int64_t first = texts.begin()[i], length = texts.begin()[i + 1] - first;
    if (length == 0) continue;
    const auto rows = [&](const at::Tensor& all) { return all.narrow(0, first, length); };
    outputs.push_back(equal_lengths(rows(q), rows(k), rows(v), 1, options));
  }
  return at::cat(outputs);
}

}  // namespace ramify::models
