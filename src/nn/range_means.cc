#include "nn/range_means.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace ramify::nn {
namespace {

struct LeafRanges {
  const int64_t* begin;
  const int64_t* end;
  int64_t count;

  LeafRanges(const at::Tensor& begins, const at::Tensor& ends)
      : begin(begins.const_data_ptr<int64_t>()), end(ends.const_data_ptr<int64_t>()), count(begins.numel()) {}
};

void mean_of(const float* rows, int64_t count, int64_t width, float* mean) {
  std::fill_n(mean, width, 0.0f);
  for (int64_t r = 0; r < count; ++r, rows += width) {
    for (int64_t c = 0; c < width; ++c) mean[c] += rows[c];
  }
  const float share = 1 / static_cast<float>(std::max<int64_t>(count, 1));
  for (int64_t c = 0; c < width; ++c) mean[c] *= share;
}

// Each row its share of the gradient of its mean.
void spread(const float* gradient, int64_t count, int64_t width, float* rows) {
  if (count == 0) return;
  const float share = 1 / static_cast<float>(count);
  for (int64_t c = 0; c < width; ++c) rows[c] = gradient[c] * share;
  for (int64_t r = 1; r < count; ++r) std::copy_n(rows, width, rows + r * width);
}

struct RangeMeans : torch::autograd::Function<RangeMeans> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows, const at::Tensor& begin,
                            const at::Tensor& end) {
    const at::Tensor x = rows.contiguous(), first = begin.contiguous(), last = end.contiguous();
    context->save_for_backward({first, last});
    context->saved_data["rows"] = x.size(0);
    const int64_t width = x.size(1);
    const at::Tensor means = at::empty({first.numel(), width}, x.options());
    const LeafRanges ranges(first, last);
    const auto* from = x.const_data_ptr<float>();
    auto* to = means.mutable_data_ptr<float>();
    at::parallel_for(0, ranges.count, 1, [&](int64_t i, int64_t end_part) {
      for (; i < end_part; ++i) {
        mean_of(from + ranges.begin[i] * width, ranges.end[i] - ranges.begin[i], width, to + i * width);
      }
    });
    return means;
  }

  // Between ranges, before the first and behind the last there are rows that nobody took.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), "model: means of leaves have no second derivatives");
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].contiguous();
    const int64_t num_rows = context->saved_data["rows"].toInt(), width = gradient.size(1);
    const LeafRanges ranges(saved[0], saved[1]);
    if (ranges.count == 0) return {at::zeros({num_rows, width}, gradient.options()), at::Tensor(), at::Tensor()};
    const at::Tensor rows = at::empty({num_rows, width}, gradient.options());
    const auto* from = gradient.const_data_ptr<float>();
    auto* to = rows.mutable_data_ptr<float>();
    at::parallel_for(0, ranges.count, 1, [&](int64_t i, int64_t end_part) {
      for (; i < end_part; ++i) {
        const int64_t gap = i == 0 ? 0 : ranges.end[i - 1];
        std::fill(to + gap * width, to + ranges.begin[i] * width, 0.0f);
        spread(from + i * width, ranges.end[i] - ranges.begin[i], width, to + ranges.begin[i] * width);
      }
    });
    std::fill(to + ranges.end[ranges.count - 1] * width, to + num_rows * width, 0.0f);
    return {rows, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool has_range_means(const at::Tensor& rows, const at::Tensor& begin, const at::Tensor& end) {
  if (!rows.is_cpu() || rows.scalar_type() != at::kFloat || !begin.is_cpu() || !end.is_cpu()) return false;
  const at::Tensor first = begin.contiguous(), last = end.contiguous();
  const LeafRanges ranges(first, last);
  for (int64_t i = 1; i < ranges.count; ++i) {
    if (ranges.begin[i] < ranges.end[i - 1]) return false;
  }
  return true;
}

at::Tensor range_means(const at::Tensor& rows, const at::Tensor& begin, const at::Tensor& end) {
  return RangeMeans::apply(rows, begin, end);
}

}  // namespace ramify::nn
