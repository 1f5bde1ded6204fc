#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bias_gelu.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>

#include "kernels/cpu/bias_gelu.h"
#include "kernels/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// Of gelu at u: the density of the normal distribution, exp(-u²/2) (without its factor), and the share of u that is let
// through, the distribution itself: Φ(u) = (1 + erf(u / √2)) / 2, by Abramowitz and Stegun's 7.1.26, which is exact to
// 1e-7 and good in the tail, too.
struct Gelu {
  V bell, share;
};
HWY_INLINE Gelu gelu_at(V u) {
  const F f;
  const V one = hn::Set(f, 1.0f);
  const V bell = exp_lanes(hn::Mul(hn::Mul(u, u), hn::Set(f, -0.5f)));
  const V below = hn::MulAdd(hn::Abs(u), hn::Set(f, 0.3275911f * 0.70710678118654752f), one);
  V t = hn::ApproximateReciprocal(below);  // 8 bits at least; each step of Newton's doubles them
  t = hn::Mul(t, hn::NegMulAdd(below, t, hn::Set(f, 2.0f)));
  t = hn::Mul(t, hn::NegMulAdd(below, t, hn::Set(f, 2.0f)));
  V p = hn::Set(f, 0.5f * 1.061405429f);
  p = hn::MulAdd(p, t, hn::Set(f, 0.5f * -1.453152027f));
  p = hn::MulAdd(p, t, hn::Set(f, 0.5f * 1.421413741f));
  p = hn::MulAdd(p, t, hn::Set(f, 0.5f * -0.284496736f));
  p = hn::MulAdd(p, t, hn::Set(f, 0.5f * 0.254829592f));
  const V tail = hn::Mul(hn::Mul(p, t), bell);
  return {bell, hn::IfThenElse(hn::Lt(u, hn::Zero(f)), tail, hn::Sub(one, tail))};
}

// step(c, count) for each vector of a row: whole ones, known to be so, and the rest.
template <class Step>
HWY_INLINE void for_gelu_vectors(int64_t width, const Step& step) {
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) step(c, kLanes);
  if (c < width) step(c, width - c);
}

void bias_gelu_forward_impl(const BiasGeluParams& p, float* y, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = p.x + row * p.width;
    float* to = y + row * p.width;
    for_gelu_vectors(p.width, [&](int64_t c, int64_t count) HWY_ATTR {
      const V u = hn::Add(load_first(x + c, count), load_first(p.bias + c, count));
      store_first(hn::Mul(u, gelu_at(u).share), to + c, count);
    });
  }
}

// gelu'(u) = Φ(u) + u exp(-u²/2) / √(2π)
void bias_gelu_backward_impl(const BiasGeluParams& p, const BiasGeluBackward& b, int64_t begin, int64_t end,
                             float* grad_bias) {
  const F f;
  std::fill_n(grad_bias, p.width, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    const float *x = p.x + row * p.width, *grad = b.grad_y + row * p.width;
    float* to = b.grad_x + row * p.width;
    for_gelu_vectors(p.width, [&](int64_t c, int64_t count) HWY_ATTR {
      const V u = hn::Add(load_first(x + c, count), load_first(p.bias + c, count));
      const Gelu gelu = gelu_at(u);
      const V slope = hn::MulAdd(hn::Mul(u, hn::Set(f, 0.39894228040143268f)), gelu.bell, gelu.share);
      const V g = hn::Mul(load_first(grad + c, count), slope);
      store_first(g, to + c, count);
      store_first(hn::Add(g, load_first(grad_bias + c, count)), grad_bias + c, count);
    });
  }
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {
namespace {

HWY_EXPORT(bias_gelu_forward_impl);
HWY_EXPORT(bias_gelu_backward_impl);

constexpr int64_t kGeluBlock = 64;  // rows; sums of a block do not depend on who works on it

int64_t gelu_blocks(const BiasGeluParams& p) {
  return (p.rows + kGeluBlock - 1) / kGeluBlock;
}

void for_gelu_blocks(const BiasGeluParams& p, const Threads& threads,
                     const std::function<void(int64_t block, int64_t begin, int64_t end)>& task) {
  constexpr int64_t kSerialNumbers = 1 << 13;
  const Task blocks = [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t block = begin; block < end; ++block) {
      task(block, block * kGeluBlock, std::min(p.rows, (block + 1) * kGeluBlock));
    }
  };
  if (p.rows * p.width <= kSerialNumbers) return blocks(0, gelu_blocks(p), 0);
  threads.run(gelu_blocks(p), blocks);
}

}  // namespace

void bias_gelu_forward(const BiasGeluParams& params, float* y, const Threads& threads) {
  is_supported();  // RAMIFY_CPU_TARGET counts here, too
  for_gelu_blocks(params, threads, [&](int64_t, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(bias_gelu_forward_impl)(params, y, begin, end);
  });
}

int64_t bias_gelu_workspace(const BiasGeluParams& params) {
  return gelu_blocks(params) * params.width;
}

void bias_gelu_backward(const BiasGeluParams& params, const BiasGeluBackward& backward, float* workspace,
                        const Threads& threads) {
  is_supported();
  for_gelu_blocks(params, threads, [&](int64_t block, int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(bias_gelu_backward_impl)(params, backward, begin, end, workspace + block * params.width);
  });
  std::fill_n(backward.grad_bias, params.width, 0.0f);
  for (int64_t block = 0; block < gelu_blocks(params); ++block) {
    const float* sums = workspace + block * params.width;
    for (int64_t c = 0; c < params.width; ++c) backward.grad_bias[c] += sums[c];
  }
}

}  // namespace ramify::cpu
#endif
