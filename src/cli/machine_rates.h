// How fast this machine copies and multiplies at its best, measured: the limits that a kernel is held against. No
// torch.
#pragma once

#include <cstdint>
#include <string>

namespace ramify::cli {

// Bytes read and written a second by copying between two halves of `working_set` bytes, on so many threads. Above a GiB
// the working set is taken as one.
double copy_bandwidth(double working_set, int64_t threads);

// float32 multiply-adds a second from registers alone, in the widest vectors that the processor has, on so many
// threads.
double multiply_add_rate(int64_t threads);

// The processor's name, as the system gives it.
std::string cpu_name();

}  // namespace ramify::cli
