// Times calls beside each other, so that a machine that is busy or warm for a while is so for all of them. No torch.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention_bench.h"

namespace ramify::cli {

struct Contender {
  std::string name;
  std::function<void()> call;
};

// The median of each, in the order given. After a call or two to warm up, contenders take turns of a tenth of a second
// (at least one call) until each has 7 calls and half a second; for calls that take more than a second, 3 calls do. The
// first call of a turn is not counted when it is a short one: it would be timed with the caches of the one before.
std::vector<Timing> time_interleaved(std::span<const Contender> contenders,
                                     const std::function<void(std::string_view)>& progress);

double median(std::vector<double> values);  // of at least one

}  // namespace ramify::cli
