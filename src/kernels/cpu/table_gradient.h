// The gradient of rows that were taken from a table, without the rows that nobody took.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/attention.h"

namespace ramify::cpu {

// Who took which row of a table: row[i] was taken by taker[begin[i] .. begin[i + 1]), in their order.
struct TakenRows {
  std::vector<int64_t> row;  // ascending
  std::vector<int64_t> begin;
  std::vector<int64_t> taker;
};
TakenRows taken_rows(std::span<const int64_t> ids, int64_t table_rows);  // linear in both; ids are rows of the table

// sums[i] = Σ gradient[taker] over the takers of row[i]; gradient [takers, width] and sums [rows, width]. Same bits
// whatever the number of threads.
void sum_taken_rows(const TakenRows& taken, const float* gradient, int64_t width, float* sums, const Threads& threads);

}  // namespace ramify::cpu
