// Which instruction sets the CPU kernels are compiled for; the best one that a machine has is chosen at run time.
// Included before any header of Highway.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#define HWY_BASELINE_TARGETS HWY_SSE4  // older machines get the composed implementation
#define HWY_DISABLED_TARGETS              \
  ((1LL << 4) | (1LL << 5) | (1LL << 6) | \
   (1LL << 7))  // variants of AVX-512 gain nothing here. Numbers, since not every release names them
#else
#define HWY_DISABLED_TARGETS \
  ((1LL << 23) | (1LL << 24) | (1LL << 25) | (1LL << 26) | (1LL << 27))  // SVE has no fixed length
#endif

// Defines a step of block_attention.h and its like: the best compiled step##_impl.
#define RAMIFY_CPU_STEP(step, What)                                           \
  HWY_EXPORT(step##_impl);                                                    \
  void step(const Call& call, What what, HeadRange heads, Scratch& scratch) { \
    HWY_DYNAMIC_DISPATCH(step##_impl)(call, what, heads, scratch);            \
  }
