#include "models/exact_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
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

bool all_equal(std::span<const int64_t> begin) {
  for (size_t i = 2; i < begin.size(); ++i) {
    if (begin[i] - begin[i - 1] != begin[1] - begin[0]) return false;
  }
  return true;
}

}  // namespace

at::Tensor padded_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::span<const int64_t> begin, const ExactOptions& options) {
  const auto texts = static_cast<int64_t>(begin.size()) - 1;
  int64_t longest = 0;
  for (int64_t i = 0; i < texts; ++i) longest = std::max(longest, begin[i + 1] - begin[i]);
  at::Tensor rows = at::empty({q.size(0)}, at::dtype(at::kLong)), is_token = at::zeros({texts * longest}, at::kBool);
  auto* next = rows.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < texts; ++i) {
    const int64_t length = begin[i + 1] - begin[i];
    std::iota(next, next + length, i * longest);
    next += length;
  }
  is_token.index_fill_(0, rows, true);
  rows = rows.to(q.device());
  const auto padded = [&](const at::Tensor& given) {
    return at::zeros({texts * longest, given.size(1), given.size(2)}, given.options()).index_copy(0, rows, given);
  };
  const at::Tensor out = equal_lengths(padded(q), padded(k), padded(v), texts, options,
                                       is_token.view({texts, 1, 1, longest}).to(q.device()));
  return out.index_select(0, rows);
}

at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           std::span<const int64_t> begin, const ExactOptions& options) {
  if (k.size(1) != q.size(1)) {  // groups of heads that share keys and values
    const int64_t group = q.size(1) / k.size(1);
    return exact_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), begin, options);
  }
  if (q.size(0) == 0) return q;
  const auto texts = static_cast<int64_t>(begin.size()) - 1;
  if (all_equal(begin)) return equal_lengths(q, k, v, texts, options);
  if (q.is_cuda()) return padded_attention(q, k, v, begin, options);
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
