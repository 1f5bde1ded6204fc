#include "kernels/cpu/simd/targets.h"  // first

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/table_gradient.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target
#include <algorithm>

#include "kernels/cpu/simd/lanes-inl.h"
#include "kernels/cpu/table_gradient.h"

HWY_BEFORE_NAMESPACE();
namespace ramify::cpu::HWY_NAMESPACE {
namespace {

// Channels stay in registers while the takers of a row go by.
template <int Vectors>
HWY_INLINE void sum_taken_channels(const float* gradient, std::span<const int64_t> takers, int64_t width, int64_t c,
                                   float* to) {
  V sum[Vectors];
  for (int i = 0; i < Vectors; ++i) sum[i] = hn::Zero(F());
  for (const int64_t taker : takers) {
    const float* from = gradient + taker * width + c;
    for (int i = 0; i < Vectors; ++i) {
      sum[i] = hn::Add(sum[i], load_first(from + i * kLanes, width - c - i * kLanes));
    }
  }
  for (int i = 0; i < Vectors; ++i) store_first(sum[i], to + c + i * kLanes, width - c - i * kLanes);
}

void sum_taken_rows_impl(const TakenRows& taken, const float* gradient, int64_t width, float* sums, int64_t begin,
                         int64_t end) {
  constexpr int kAtOnce = 4;
  for (int64_t i = begin; i < end; ++i) {
    const std::span takers(taken.taker.data() + taken.begin[i], taken.taker.data() + taken.begin[i + 1]);
    int64_t c = 0;
    for (; c + kAtOnce * kLanes <= width; c += kAtOnce * kLanes) {
      sum_taken_channels<kAtOnce>(gradient, takers, width, c, sums + i * width);
    }
    for (; c < width; c += kLanes) sum_taken_channels<1>(gradient, takers, width, c, sums + i * width);
  }
}

}  // namespace
}  // namespace ramify::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ramify::cpu {
namespace {

HWY_EXPORT(sum_taken_rows_impl);

}  // namespace

TakenRows taken_rows(std::span<const int64_t> ids, int64_t table_rows) {
  std::vector<int64_t> next(table_rows, 0);  // of each row: how many takers; then where the next one goes
  for (const int64_t id : ids) ++next[id];
  TakenRows taken;
  int64_t begin = 0;
  for (int64_t row = 0; row < table_rows; ++row) {
    const int64_t count = next[row];
    if (count == 0) continue;
    taken.row.push_back(row);
    taken.begin.push_back(begin);
    next[row] = begin;
    begin += count;
  }
  taken.begin.push_back(begin);
  taken.taker.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) taken.taker[next[ids[i]]++] = static_cast<int64_t>(i);
  return taken;
}

// Threads share takers, since few rows have most of them: a part has the rows that begin in it.
void sum_taken_rows(const TakenRows& taken, const float* gradient, int64_t width, float* sums, const Threads& threads) {
  constexpr int64_t kParts = 64, kSerialNumbers = 1 << 15;
  is_supported();  // RAMIFY_CPU_TARGET counts here, too
  const auto num_takers = static_cast<int64_t>(taken.taker.size()), num_rows = static_cast<int64_t>(taken.row.size());
  if (num_takers * width <= kSerialNumbers) {
    return HWY_DYNAMIC_DISPATCH(sum_taken_rows_impl)(taken, gradient, width, sums, 0, num_rows);
  }
  const auto first_row = [&](int64_t part) {
    return std::ranges::lower_bound(taken.begin.begin(), taken.begin.end() - 1, num_takers * part / kParts) -
           taken.begin.begin();
  };
  threads.run(kParts, [&](int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(sum_taken_rows_impl)(taken, gradient, width, sums, first_row(begin), first_row(end));
  });
}

}  // namespace ramify::cpu
#endif
