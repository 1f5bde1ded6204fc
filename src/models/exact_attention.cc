#include "models/exact_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <vector>

namespace ramify::models {
namespace {

// [n·L, H, d] -> [n, H, L, d]
at::Tensor by_head(const at::Tensor& rows, int64_t texts) {
  return rows.view({texts, rows.size(0) / texts, rows.size(1), rows.size(2)}).transpose(1, 2);
}

// Texts of one length.
at::Tensor equal_lengths(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t texts,
                         const ExactOptions& options) {
  const bool is_causal = options.mask == Mask::causal;
  std::optional<at::Tensor> band;
  if (options.window) {
    const at::Tensor place = at::arange(q.size(0) / texts, q.options().dtype(at::kLong));
    const at::Tensor back = place.unsqueeze(1) - place;
    band = (back <= *options.window) & (back >= (is_causal ? 0 : -*options.window));
  }
  const at::Tensor out = at::scaled_dot_product_attention(by_head(q, texts), by_head(k, texts), by_head(v, texts), band,
                                                          options.dropout, is_causal && !band);
  return out.transpose(1, 2).reshape({q.size(0), q.size(1), v.size(2)});
}

bool all_equal(std::span<const int64_t> begin) {
  for (size_t i = 2; i < begin.size(); ++i) {
    if (begin[i] - begin[i - 1] != begin[1] - begin[0]) return false;
  }
  return true;
}

}  // namespace

at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           std::span<const int64_t> begin, const ExactOptions& options) {
  if (k.size(1) != q.size(1)) {  // groups of heads that share keys and values
    const int64_t group = q.size(1) / k.size(1);
    return exact_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), begin, options);
  }
  if (q.size(0) == 0) return q;
  const auto texts = static_cast<int64_t>(begin.size()) - 1;
  if (all_equal(begin)) return equal_lengths(q, k, v, texts, options);
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i + 1 < begin.size(); ++i) {
    const int64_t length = begin[i + 1] - begin[i];
    if (length == 0) continue;
    const auto rows = [&](const at::Tensor& all) { return all.narrow(0, begin[i], length); };
    outputs.push_back(equal_lengths(rows(q), rows(k), rows(v), 1, options));
  }
  return at::cat(outputs);
}

}  // namespace ramify::models
