// torch's threads as the kernels take them.
#pragma once

#include <ATen/Parallel.h>

#include "kernels/cpu/attention.h"

namespace ramify {

inline cpu::Threads torch_threads() {
  return {at::get_num_threads(), [](int64_t count, const cpu::Task& task) {
            at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) { task(begin, end, at::get_thread_num()); });
          }};
}

}  // namespace ramify
