// Which instruction set the kernels use, once for the process.
// clang-format off
#include "kernels/cpu/simd/targets.h"  // first
// clang-format on

#include <cstdio>
#include <cstdlib>
#include <string>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "kernels/cpu/attention.h"

namespace ramify::cpu {
namespace {

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

std::string short_name(int64_t target) {
  return target == HWY_AVX3 ? "avx512" : lower_case(hwy::TargetName(target));
}

// The best of the compiled targets that the machine has and RAMIFY_CPU_TARGET admits; 0: none.
int64_t choose() {
  const char* wish = std::getenv("RAMIFY_CPU_TARGET");
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  if (wish && *wish) {
    int64_t better = 0;  // a lower bit is a better target
    std::string known;
    for (int64_t bit = 1; bit > 0 && bit <= usable; bit <<= 1) {
      if (!(usable & bit)) continue;
      if (lower_case(wish) == short_name(bit)) {
        hwy::DisableTargets(better);
        return bit;
      }
      better |= bit;
      known += (known.empty() ? "" : ", ") + short_name(bit);
    }
    std::fprintf(stderr, "ramify: RAMIFY_CPU_TARGET is %s; this machine has %s. Taking the first.\n", wish,
                 known.c_str());
  }
  return usable & -usable;
}

int64_t chosen() {
  static const int64_t target = choose();
  return target;
}

}  // namespace

bool is_supported() {
  return chosen() != 0;
}

const char* target_name() {
  static const std::string name = chosen() ? short_name(chosen()) : "none";
  return name.c_str();
}

}  // namespace ramify::cpu
