// The least time that attention over a forest could take: what it must move at the speed of a copy, and what it must
// multiply at the machine's rate. A kernel between the larger of the two and their sum has nothing left to gain.
#pragma once

#include "attention_bench.h"
#include "ramify/forest.h"

namespace ramify::cli {

// The bytes of one pass: every tensor that goes in and every one that comes out, once.
//   forward    q, k, v -> out
//   backward   q, k, v, grad_out -> grad_q, grad_k, grad_v
double forward_bytes(const AttentionBench& bench, int64_t tokens);
double backward_bytes(const AttentionBench& bench, int64_t tokens);

// Scored pairs a head: a child and one of its siblings with tied queries; a leaf and a sibling of it or of one of its
// ancestors with untied ones; with a causal form only siblings to the left, and each leaf with itself. With
// causal=prefix every leaf has queries of its own, as with untied ones.
double score_pairs(const Forest& forest, Tie tie, Causal causal);
// The same with untied queries and an exact window.
double window_pairs(const Forest& forest, Causal causal, int64_t window);

// Copying is measured at the working set of each pass, on bench.threads threads. A pair takes two products of length d
// forward (score, weighted value), and backward five: the score again, and the gradients of weight, value, query and
// key. Means, exponentials and the way down are left out.
Floors floors_of(const AttentionBench& bench, const Forest& forest, double multiply_adds_per_second);

}  // namespace ramify::cli
