// What `ramify bench attention` asks to be measured, and what comes back. Plain values: the program knows them without
// torch, and the library that measures (attention_bench.cc) is loaded only when they are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ramify/options.h"

namespace ramify::cli {

enum class Pass {
  forward,
  forward_backward,  // and the gradients by q, k and v
};

struct AttentionBench {
  std::vector<int64_t> tokens = {512, 4096, 16384};  // one row each
  std::string hierarchy = "16*";
  int64_t heads = 12;
  int64_t key_heads = 12;  // of k and v; divides heads
  int64_t dim = 64;        // of one head
  std::string dtype = "float32";
  Tie tie = Tie::block;
  Causal causal = Causal::none;
  int64_t window = 0;  // untied only
  Pass pass = Pass::forward;
  int64_t threads = 0;                                    // 0: as many as torch takes, one a core
  std::vector<std::string> peers = {"composed", "sdpa"};  // what ours is compared with
};

struct Timing {
  std::string name;  // "ours", then the peers
  double median_ms = 0;
  int64_t calls = 0;  // that the median is of
};

// What a pass must move and compute at least, and the time that takes at the rates measured beside it
// (docs/benchmarks.md).
struct Floors {
  double bytes = 0;
  double multiply_adds = 0;
  double copy_ms = 0;
  double flop_ms = 0;
};

struct AttentionRow {
  int64_t tokens = 0;
  std::vector<Timing> timings;
  Floors floors;
};

struct AttentionReport {
  std::string cpu;
  std::string torch;
  int64_t threads = 0;
  double multiply_adds_per_second = 0;  // float32, all threads together
  std::string why_not_fused;            // why "ours" is the composed implementation; empty: it is the fused kernels
  std::vector<AttentionRow> rows;
};

// Measures row by row, with progress on stderr; `on_row` sees the report after each.
using MeasureAttention = void(const AttentionBench& bench, const std::function<void(const AttentionReport&)>& on_row);

// How the loaded library offers it, without a C++ name to look up.
inline constexpr const char* kMeasureAttention = "ramify_measure_attention";

}  // namespace ramify::cli
