#include "nn/rows.h"

#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ramify::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor put_together(at::TensorList parts, const variable_list& leaves) {
  int64_t count = 0;
  for (const at::Tensor& part : parts) count += part.size(0);
  std::vector<int64_t> shape = parts[0].sizes().vec();
  shape[0] = count;
  at::Tensor rows = at::empty(shape, parts[0].options());
  for (size_t p = 0; p < parts.size(); ++p) rows.index_copy_(0, leaves[p], parts[p]);
  return rows;
}

variable_list select_each(const at::Tensor& rows, const variable_list& leaves) {
  variable_list parts;
  for (const at::Tensor& leaf : leaves) parts.push_back(rows.index_select(0, leaf));
  return parts;
}

// Permutations, so each is the other's gradient; torch's own would add into zeros, a row at a time.
struct Interleave : Function<Interleave> {
  static at::Tensor forward(AutogradContext* context, at::TensorList parts, const variable_list& leaves) {
    context->save_for_backward(leaves);
    return put_together(parts, leaves);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list parts = select_each(gradients[0], context->get_saved_variables());
    parts.emplace_back();  // of the leaves
    return parts;
  }
};

struct TakeApart : Function<TakeApart> {
  static variable_list forward(AutogradContext* context, const at::Tensor& rows, const variable_list& leaves) {
    context->save_for_backward(leaves);
    return select_each(rows, leaves);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {put_together(gradients, context->get_saved_variables()), at::Tensor()};
  }
};

constexpr int64_t kSum = 0, kMean = 1;  // modes of embedding_bag

}  // namespace

at::Tensor interleave(const std::vector<at::Tensor>& parts, const std::vector<at::Tensor>& leaves) {
  return Interleave::apply(at::TensorList(parts), leaves);
}

std::vector<at::Tensor> take_apart(const at::Tensor& rows, const std::vector<at::Tensor>& leaves) {
  return TakeApart::apply(rows, leaves);
}

at::Tensor group_means(const at::Tensor& rows, const Groups& groups) {
  if (groups.member.numel() == 0) return at::zeros({groups.begin.numel() - 1, rows.size(1)}, rows.options());
  const bool weighted = groups.weight.defined();
  const at::ScalarType dtype = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return std::get<0>(at::embedding_bag(rows.to(dtype), groups.member, groups.begin, /*scale_grad_by_freq=*/false,
                                       weighted ? kSum : kMean, /*sparse=*/false,
                                       weighted ? std::optional(groups.weight.to(dtype)) : std::nullopt,
                                       /*include_last_offset=*/true))
      .to(rows.scalar_type());
}

}  // namespace ramify::nn
