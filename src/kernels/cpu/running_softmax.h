// A softmax of one query over rows that come in parts: the step of generation, where rows are few and a tile of queries
// is one.
#pragma once

#include <cstdint>

namespace ramify::cpu {

// Keys and values that lie one behind the other.
struct KeyRows {
  const float* k = nullptr;          // [count][dim]
  const float* v = nullptr;          // [count][value_dim]
  const float* log_sizes = nullptr;  // [count], or none: each is one leaf
  int64_t count = 0;
};

struct RunningSoftmax {
  float max = 0;           // of all scores; -inf: none has come
  float sum = 0;           // of exp(score - max)
  float* value = nullptr;  // [value_dim] Σ exp(score - max) v
  int64_t value_dim = 0;

  // q [dim]
  void see(const float* q, int64_t dim, float scale, const KeyRows& rows);
  float log_sum() const;
  // value becomes the mean; zeros where nothing has come.
  void finish();
};

float dot(const float* a, const float* b, int64_t count);
void add_scaled(float factor, const float* from, float* to, int64_t count);

}  // namespace ramify::cpu
