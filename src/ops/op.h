// The torch op `ramify::attention` as C++ sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "ops/problem.h"

namespace ramify {

using AttentionOp = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::TensorList forest, at::TensorList plan,
    const std::optional<at::Tensor>& positions, const std::optional<at::Tensor>& position_index,
    const std::optional<at::Tensor>& alpha, std::optional<double> scale, std::optional<bool> include_self,
    std::string_view tie, std::string_view causal, std::string_view implementation, bool save, int64_t window);

using AttentionBackwardOp = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor& grad_out, const at::Tensor& grad_energy, const at::Tensor& q, const at::Tensor& k,
    const at::Tensor& v, at::TensorList forest, at::TensorList plan, const std::optional<at::Tensor>& positions,
    const std::optional<at::Tensor>& position_index, const std::optional<at::Tensor>& alpha,
    std::optional<double> scale, std::optional<bool> include_self, std::string_view tie, std::string_view causal,
    std::string_view implementation, const std::optional<at::Tensor>& saved, int64_t window);

// Both through torch's dispatcher, so that autograd, autocast and tracing see them.
AttentionOp call_attention;
AttentionBackwardOp call_attention_backward;

}  // namespace ramify
