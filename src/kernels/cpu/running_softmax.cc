#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/running_softmax.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>
#include <cmath>

#include "kernels/cpu/running_softmax.h"
#include "kernels/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

float dot_impl(const float* a, const float* b, int64_t count) {
  V sum = hn::Zero(F());
  for (int64_t c = 0; c < count; c += kLanes) {
    sum = hn::MulAdd(load_first(a + c, count - c), load_first(b + c, count - c), sum);
  }
  return sum_of_lanes(sum);
}

void add_scaled_impl(float factor, const float* from, float* to, int64_t count) {
  const V times = hn::Set(F(), factor);
  for (int64_t c = 0; c < count; c += kLanes) {
    store_first(hn::MulAdd(times, load_first(from + c, count - c), load_first(to + c, count - c)), to + c, count - c);
  }
}

void multiply(float factor, float* row, int64_t count) {
  for (int64_t c = 0; c < count; ++c) row[c] *= factor;
}

void see_impl(const float* q, int64_t dim, float scale, const KeyRows& rows, RunningSoftmax& all) {
  constexpr int64_t kBlock = 64;
  float scores[kBlock];
  for (int64_t begin = 0; begin < rows.count; begin += kBlock) {
    const int64_t count = std::min(kBlock, rows.count - begin);
    float largest = all.max;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t row = begin + j;
      scores[j] = scale * dot_impl(q, rows.k + row * dim, dim) + (rows.log_sizes ? rows.log_sizes[row] : 0.0f);
      largest = std::max(largest, scores[j]);
    }
    if (largest > all.max) {
      const float factor = std::exp(all.max - largest);
      all.max = largest, all.sum *= factor;
      multiply(factor, all.value, all.value_dim);
    }
    for (int64_t j = 0; j < count; ++j) {
      const float weight = std::exp(scores[j] - all.max);
      all.sum += weight;
      add_scaled_impl(weight, rows.v + (begin + j) * all.value_dim, all.value, all.value_dim);
    }
  }
}

void finish_impl(RunningSoftmax& all) {
  multiply(all.sum > 0 ? 1 / all.sum : 0.0f, all.value, all.value_dim);
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {

HWY_EXPORT(dot_impl);
HWY_EXPORT(add_scaled_impl);
HWY_EXPORT(see_impl);
HWY_EXPORT(finish_impl);

float dot(const float* a, const float* b, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(dot_impl)(a, b, count);
}
void add_scaled(float factor, const float* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_scaled_impl)(factor, from, to, count);
}
void RunningSoftmax::see(const float* q, int64_t dim, float scale, const KeyRows& rows) {
  HWY_DYNAMIC_DISPATCH(see_impl)(q, dim, scale, rows, *this);
}
float RunningSoftmax::log_sum() const {
  return max + std::log(sum);
}
void RunningSoftmax::finish() {
  HWY_DYNAMIC_DISPATCH(finish_impl)(*this);
}

}  // namespace ramify::cpu
#endif
