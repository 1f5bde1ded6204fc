// Multinomial logistic regression on fixed vectors: what a model's embeddings are worth for a task.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ramify::compare {

class LogisticHead {
 public:
  // vectors [n, width], classes [n] below `num_classes`. The vectors are standardised; the penalty is on the square of
  // the weights, a half of it, beside the mean loss. float64 and L-BFGS from zero, so the same data gives the same
  // head.
  static LogisticHead fit(const at::Tensor& vectors, const std::vector<int64_t>& classes, int64_t num_classes,
                          double penalty = 1e-2);

  std::vector<int64_t> predict(const at::Tensor& vectors) const;

 private:
  at::Tensor mean_, deviation_;  // [width]
  at::Tensor weights_;           // [width + 1, classes], the last row the bias
};

}  // namespace ramify::compare
