#include "ops/table_rows.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/table_gradient.h"
#include "ops/torch_threads.h"

namespace ramify {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::span<const int64_t> numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

struct TakeRows : torch::autograd::Function<TakeRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& ids) {
    context->save_for_backward({ids});
    context->saved_data["rows"] = table.size(0);
    return at::embedding(table, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor ids = context->get_saved_variables()[0].contiguous(), gradient = gradients[0].contiguous();
    const int64_t table_size = context->saved_data["rows"].toInt(), width = gradient.size(1);
    const cpu::TakenRows taken = cpu::taken_rows(numbers_of(ids), table_size);
    const auto count = static_cast<int64_t>(taken.row.size());
    const at::Tensor indices = at::empty({1, count}, at::kLong), sums = at::empty({count, width}, gradient.options());
    std::ranges::copy(taken.row, indices.mutable_data_ptr<int64_t>());
    cpu::sum_taken_rows(taken, gradient.const_data_ptr<float>(), width, sums.mutable_data_ptr<float>(),
                        torch_threads());
    return {at::_sparse_coo_tensor_unsafe(indices, sums, {table_size, width}, gradient.options().layout(at::kSparse),
                                          /*is_coalesced=*/true),
            at::Tensor()};
  }
};

}  // namespace

bool has_row_gradient(const at::Tensor& table, TableGradient gradient) {
  return gradient == TableGradient::rows && table.is_cpu() && table.scalar_type() == at::kFloat && cpu::is_supported();
}

at::Tensor table_rows(const at::Tensor& table, const at::Tensor& ids, TableGradient gradient) {
  return has_row_gradient(table, gradient) ? TakeRows::apply(table, ids) : at::embedding(table, ids);
}

// torch forgets which ones are.
at::Tensor in_row_order(const at::Tensor& gradient) {
  const at::Tensor indices = gradient._indices().contiguous();
  const auto rows = numbers_of(indices);
  const bool is_ordered = std::ranges::adjacent_find(rows, std::ranges::greater_equal()) == rows.end();
  return is_ordered ? gradient : gradient._coalesced_(false).coalesce();
}

void adamw_rows_(const at::Tensor& table, const at::Tensor& mean, const at::Tensor& square, const at::Tensor& gradient,
                 const AdamWRates& rates) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = gradient._indices().contiguous(), values = gradient._values().contiguous();
  TORCH_INTERNAL_ASSERT(table.is_contiguous() && mean.is_contiguous() && square.is_contiguous());
  const double mean_share = 1 - std::pow(rates.beta1, rates.step);
  const double square_share = 1 - std::pow(rates.beta2, rates.step);
  cpu::adamw_rows({.rows = table.size(0),
                   .width = table.size(1),
                   .values = table.mutable_data_ptr<float>(),
                   .mean = mean.mutable_data_ptr<float>(),
                   .square = square.mutable_data_ptr<float>(),
                   .gradient_rows = numbers_of(rows),
                   .gradient = values.const_data_ptr<float>()},
                  {.rest = static_cast<float>(1 - rates.rate * rates.weight_decay),
                   .rate = static_cast<float>(rates.rate / mean_share),
                   .mean_rate = static_cast<float>(1 - rates.beta1),
                   .square_rest = static_cast<float>(rates.beta2),
                   .square_rate = static_cast<float>(1 - rates.beta2),
                   .root_scale = static_cast<float>(1 / std::sqrt(square_share)),
                   .epsilon = static_cast<float>(rates.epsilon)},
                  torch_threads());
}

}  // namespace ramify
