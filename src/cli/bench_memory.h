// Whether a measurement fits into memory, asked before it starts: a machine that runs out of memory kills the program
// without a word.
#pragma once

#include "attention_bench.h"

namespace ramify::cli {

// Throws std::runtime_error with what is needed and what there is. Where the system does not say what there is,
// everything passes.
void require_memory(const AttentionBench& bench);

}  // namespace ramify::cli
