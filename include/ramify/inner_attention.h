// Attention inside families as a replaceable piece of the composed implementation.
//
// The hierarchy only needs, for each query, an average of the siblings' values and the logarithm of the
// weight that went into it. Anything that gives both can stand in for exact softmax: an approximation for
// very wide families, a windowed form, a library's kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ramify {

enum class SiblingMask {
  others,  // every child but the query's own branch
  left,    // children before the query's own branch
  right,   // children after it
};

// F families of up to B children, seen by up to Q queries each, in H heads. Padding repeats rows of the same
// family.
struct FamilyAttentionInput {
  at::Tensor q;                // [H, F, Q, d]
  at::Tensor k;                // [H, F, B, d]
  at::Tensor v;                // [H, F, B, dv]
  at::Tensor query_positions;  // [H, F, Q, dp]; undefined without positions
  at::Tensor key_positions;    // [H, F, B, dp]
  at::Tensor log_size;         // [F, B]: log of the leaves below a child, -inf where there is no such child
  at::Tensor own;              // [F, Q] int64: the child on whose branch a query sits
  SiblingMask mask = SiblingMask::others;
  double scale = 1;
  bool finite_values = true;  // v has no NaN or infinity; if it has, a weight of 0 must still hide it
};

struct FamilyAttentionOutput {
  at::Tensor out;          // [H, F, Q, dv]; 0 where nothing is visible
  at::Tensor log_sum_exp;  // [H, F, Q]; -inf there
};

class InnerAttention {
 public:
  virtual ~InnerAttention() = default;
  // Differentiable by autograd, in the dtype of the input (float32 or float64). The weight of child c is
  // exp(scale·q·k_c + position·position_c + log_size_c).
  virtual FamilyAttentionOutput operator()(const FamilyAttentionInput& input) const = 0;
};

// Softmax over all visible siblings. O(Q·B) a family.
class ExactAttention final : public InnerAttention {
 public:
  FamilyAttentionOutput operator()(const FamilyAttentionInput& input) const override;
};

// FAVOR+: positive orthogonal random features that approximate the same weights in O((Q + B)·features) a
// family. The error falls with the square root of the number of features; worth it for families of thousands.
// The features are fixed by the seed. With SiblingMask::left or right it keeps running sums: O(B·features·dv) memory.
class FavorAttention final : public InnerAttention {
 public:
  explicit FavorAttention(int64_t num_features, uint64_t seed = 0);
  FamilyAttentionOutput operator()(const FamilyAttentionInput& input) const override;

 private:
  int64_t num_features_;
  uint64_t seed_;
};

// The exact scores [H, F, Q, B], -inf where a query may not look.
at::Tensor family_scores(const FamilyAttentionInput& input);

// Sums of values under weights [H, F, Q, B]: NaN where a weight above 0 meets a value that is not finite, only there.
at::Tensor weighted_values(const at::Tensor& weights, const FamilyAttentionInput& input);

}  // namespace ramify
