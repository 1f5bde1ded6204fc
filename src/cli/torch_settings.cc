#include "torch_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <thread>

#include "train/interrupt.h"

namespace ramify::cli {
namespace {

// What one step frees the next one takes again: given back to the system in between, every page of it would have to be
// faulted in and cleared anew.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);         // large blocks come from the heap, too
  mallopt(M_TRIM_THRESHOLD, -1);  // whose end is not given back
#endif
}

}  // namespace

int interrupted_status() {
  return 128 + train::InterruptGuard::caught();
}

void apply_compute_options(ComputeOptions& compute) {
  keep_freed_memory();
  // Gradients of attention that has learned to look at one thing are tiny, and arithmetic with numbers below 1e-38 is
  // ten times as slow. Threads that are made later inherit it.
  at::globalContext().setFlushDenormal(true);
  if (compute.threads > 0) at::set_num_threads(compute.threads);
  if (compute.workers == 0) compute.workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace ramify::cli
