#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

enum class Gradient { none, given };

// Numbers [begin, end) of the table, with the gradient that begins at `gradient`.
template <Gradient kind>
void adamw_update(const AdamWTable& t, const AdamWStep& step, int64_t begin, int64_t end, const float* gradient) {
  const F f;
  const V rest = hn::Set(f, step.rest), rate = hn::Set(f, step.rate), mean_rate = hn::Set(f, step.mean_rate);
  const V square_rest = hn::Set(f, step.square_rest), square_rate = hn::Set(f, step.square_rate);
  const V root_scale = hn::Set(f, step.root_scale), epsilon = hn::Set(f, step.epsilon);
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t count = end - i;
    V mean = load_first(t.mean + i, count), square = hn::Mul(load_first(t.square + i, count), square_rest);
    if constexpr (kind == Gradient::given) {
      const V g = load_first(gradient + (i - begin), count);
      mean = hn::MulAdd(mean_rate, hn::Sub(g, mean), mean);
      square = hn::MulAdd(hn::Mul(square_rate, g), g, square);
    } else {
      mean = hn::NegMulAdd(mean_rate, mean, mean);
    }
    const V change = hn::Div(hn::Mul(rate, mean), hn::MulAdd(hn::Sqrt(square), root_scale, epsilon));
    store_first(mean, t.mean + i, count);
    store_first(square, t.square + i, count);
    store_first(hn::Sub(hn::Mul(load_first(t.values + i, count), rest), change), t.values + i, count);
  }
}

void adamw_rows_impl(const AdamWTable& t, const AdamWStep& step, int64_t begin, int64_t end) {
  const FlushDenormals flush;
  const auto rows = t.gradient_rows;
  const auto first = std::ranges::lower_bound(rows, begin) - rows.begin();
  int64_t done = begin;
  for (auto i = static_cast<size_t>(first); i < rows.size() && rows[i] < end; ++i) {
    adamw_update<Gradient::none>(t, step, done * t.width, rows[i] * t.width, nullptr);
    adamw_update<Gradient::given>(t, step, rows[i] * t.width, (rows[i] + 1) * t.width,
                                  t.gradient + static_cast<int64_t>(i) * t.width);
    done = rows[i] + 1;
  }
  adamw_update<Gradient::none>(t, step, done * t.width, end * t.width, nullptr);
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {
namespace {

HWY_EXPORT(adamw_rows_impl);

}  // namespace

void adamw_rows(const AdamWTable& table, const AdamWStep& step, const Threads& threads) {
  constexpr int64_t kSerialNumbers = 1 << 14;
  is_supported();  // RAMIFY_CPU_TARGET counts here, too
  const auto part = [&](int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(adamw_rows_impl)(table, step, begin, end);
  };
  if (table.rows * table.width <= kSerialNumbers) return part(0, table.rows, 0);
  threads.run(table.rows, part);
}

}  // namespace ramify::cpu
#endif
