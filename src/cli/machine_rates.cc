#include "machine_rates.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace ramify::cli {
namespace {

constexpr int kRuns = 10;  // the best one counts: these are limits

// Runs work(thread) on all threads at once; the seconds that the slowest took.
double parallel_seconds(int64_t threads, const std::function<void(int64_t)>& work) {
  std::vector<double> seconds(threads);
  std::latch start(threads);
  {
    std::vector<std::jthread> running;
    for (int64_t t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        start.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        work(t);
        seconds[t] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      });
    }
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

double best_seconds(int64_t threads, const std::function<void(int64_t)>& work) {
  double best = parallel_seconds(threads, work);
  for (int run = 1; run < kRuns; ++run) best = std::min(best, parallel_seconds(threads, work));
  return best;
}

using Vector16 = float __attribute__((vector_size(16)));
using Vector32 = float __attribute__((vector_size(32)));
using Vector64 = float __attribute__((vector_size(64)));

constexpr int64_t kRounds = 2'000'000;  // some milliseconds

// Chains of dependent multiply-adds, as many as hide the latency and still fit the registers. This file is compiled
// with -ffp-contract=fast, which makes one instruction of each.
template <class Vector, int kChains>
[[gnu::always_inline]] inline float multiply_add_chains() {
  Vector chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = Vector{} + static_cast<float>(c);
  const Vector factor = Vector{} + 0.999F, summand = Vector{} + 1.F;
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) chains[c] = chains[c] * factor + summand;
  }
  Vector sum = chains[0];
  for (int c = 1; c < kChains; ++c) sum += chains[c];
  return sum[0];
}

struct MultiplyAdds {
  float (*run)();
  double count;  // of one run
};

template <class Vector, int kChains>
constexpr double kCount = static_cast<double>(kRounds) * kChains*(sizeof(Vector) / sizeof(float));

#ifdef __x86_64__
[[gnu::target("avx512f")]] float run_avx512() {
  return multiply_add_chains<Vector64, 16>();
}
[[gnu::target("avx2,fma")]] float run_avx2() {
  return multiply_add_chains<Vector32, 12>();
}
float run_sse2() {
  return multiply_add_chains<Vector16, 12>();
}

MultiplyAdds widest_multiply_adds() {
  if (__builtin_cpu_supports("avx512f")) return {run_avx512, kCount<Vector64, 16>};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {run_avx2, kCount<Vector32, 12>};
  return {run_sse2, kCount<Vector16, 12>};
}
#else
float run_vector16() {
  return multiply_add_chains<Vector16, 16>();
}

MultiplyAdds widest_multiply_adds() {
  return {run_vector16, kCount<Vector16, 16>};
}
#endif

}  // namespace

double copy_bandwidth(double working_set, int64_t threads) {
  constexpr double kLargest = 1 << 30, kSmallest = 1 << 12, kBytesOfRun = 1 << 28;
  const double both = std::clamp(working_set, kSmallest, kLargest);
  const auto half = static_cast<size_t>(both / 2);
  const auto from = std::make_unique_for_overwrite<std::byte[]>(half);
  const auto to = std::make_unique_for_overwrite<std::byte[]>(half);
  const auto slice = [&](int64_t t) { return half * static_cast<size_t>(t) / static_cast<size_t>(threads); };
  parallel_seconds(threads, [&](int64_t t) {
    std::memset(from.get() + slice(t), 1, slice(t + 1) - slice(t));
    std::memset(to.get() + slice(t), 2, slice(t + 1) - slice(t));
  });
  const auto rounds = std::max<int64_t>(1, static_cast<int64_t>(kBytesOfRun / both));
  const double seconds = best_seconds(threads, [&](int64_t t) {
    for (int64_t round = 0; round < rounds; ++round) {
      std::memcpy(to.get() + slice(t), from.get() + slice(t), slice(t + 1) - slice(t));
      asm volatile("" : : "r"(to.get()) : "memory");  // what is copied counts as read
    }
  });
  return 2.0 * static_cast<double>(half) * static_cast<double>(rounds) / seconds;
}

double multiply_add_rate(int64_t threads) {
  const MultiplyAdds multiply_adds = widest_multiply_adds();
  const double seconds = best_seconds(threads, [&](int64_t) {
    [[maybe_unused]] volatile float result = multiply_adds.run();  // so that it is computed
  });
  return multiply_adds.count * static_cast<double>(threads) / seconds;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace ramify::cli
