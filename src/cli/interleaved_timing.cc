#include "interleaved_timing.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace ramify::cli {
namespace {

constexpr double kTurnSeconds = 0.1;
constexpr double kShortCall = 0.05, kLongCall = 1;

double seconds_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Samples {
  double call = 0;  // about how long one takes, from warming up
  double total = 0;
  std::vector<double> seconds;

  bool enough() const { return call > kLongCall ? seconds.size() >= 3 : seconds.size() >= 7 && total >= 0.5; }
};

void take_turn(const Contender& contender, Samples& samples) {
  if (samples.call < kShortCall) contender.call();
  double turn = 0;
  do {
    samples.seconds.push_back(seconds_of(contender.call));
    turn += samples.seconds.back();
  } while (turn < kTurnSeconds);
  samples.total += turn;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<Timing> time_interleaved(std::span<const Contender> contenders,
                                     const std::function<void(std::string_view)>& progress) {
  std::vector<Samples> samples(contenders.size());
  for (size_t i = 0; i < contenders.size(); ++i) {
    progress(contenders[i].name + ", warming up");
    samples[i].call = seconds_of(contenders[i].call);
    if (samples[i].call < kLongCall) samples[i].call = seconds_of(contenders[i].call);  // the first also sets things up
  }
  for (bool done = false; !done;) {
    done = true;
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (samples[i].enough()) continue;
      progress(fmt::format("{}, call {}", contenders[i].name, samples[i].seconds.size() + 1));
      take_turn(contenders[i], samples[i]);
      done = done && samples[i].enough();
    }
  }
  std::vector<Timing> timings;
  for (size_t i = 0; i < contenders.size(); ++i) {
    timings.push_back(
        {contenders[i].name, median(samples[i].seconds) * 1e3, static_cast<int64_t>(samples[i].seconds.size())});
  }
  return timings;
}

}  // namespace ramify::cli
