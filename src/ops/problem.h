// One checked call of attention, as every implementation takes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

#include "hierarchy/plan.h"
#include "ramify/attention.h"

namespace ramify {

struct AttentionGradients {
  at::Tensor q, k, v, positions, alpha;  // the last two undefined where the input was
};

struct Problem {
  at::Tensor q, k, v;                    // [T, H, d], [T, Hkv, d], [T, Hkv, dv]
  std::vector<at::Tensor> forest;        // first_child, level_begin, tree_begin: int64 on the CPU
  std::vector<at::Tensor> plan;          // plan_tensors.h; empty: to be made from `forest`
  at::Tensor positions, position_index;  // both or none
  at::Tensor alpha;                      // [1] or [levels]; undefined: softmax
  double scale = 1;
  bool include_self = false;
  Tie tie = Tie::block;
  Causal causal = Causal::none;
  int64_t window = 0;

  int64_t num_leaves() const { return q.size(0); }
  int64_t num_heads() const { return q.size(1); }
  int64_t num_trees() const { return forest[2].size(0) - 1; }
};

// The arguments of the op as they come.
struct AttentionCall {
  const at::Tensor &q, &k, &v;
  at::TensorList forest, plan;
  const std::optional<at::Tensor>&positions, &position_index, &alpha;
  std::optional<double> scale;
  std::optional<bool> include_self;
  std::string_view tie, causal;
  int64_t window = 0;
};

// Checks everything about a call that can be checked without work proportional to q.
Problem check(const AttentionCall& call);

// float32 for half types, the type itself otherwise: what sums and exponentials are computed in.
at::ScalarType compute_dtype(at::ScalarType dtype);

// Which plan a mode follows.
Queries queries_of(Tie tie, Causal causal);

std::string_view name_of(Tie tie);
std::string_view name_of(Causal causal);
std::string_view name_of(Implementation implementation);
Tie tie_from(std::string_view name);
Causal causal_from(std::string_view name);
Implementation implementation_from(std::string_view name);

}  // namespace ramify
