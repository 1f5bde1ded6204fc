// The calls that a benchmark of attention times, each as a user would write it: ours, the composed implementation, and
// torch's softmax attention. Inputs are made once; outputs and gradients are allocated by every call.
#pragma once

#include <string>
#include <vector>

#include "attention_bench.h"
#include "interleaved_timing.h"
#include "ramify/forest.h"

namespace ramify::cli {

// The hierarchy of one row.
Forest bench_forest(const AttentionBench& bench, int64_t tokens);

// Why the op takes the composed implementation for "ours", whatever the tokens; empty: it takes the fused kernels.
std::string why_ours_is_not_fused(const AttentionBench& bench);

// "ours", then bench.peers. Random inputs of a fixed seed; ours and composed take the same packed [T, H, d], torch's
// takes contiguous [1, H, T, d].
std::vector<Contender> attention_contenders(const AttentionBench& bench, const Forest& forest);

}  // namespace ramify::cli
