#include "torch_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>

#include "notes.h"
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
  if (compute.workers == 0) {
    compute.workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / compute.launch.local_size);
  }
  // every process of a machine has a GPU of its own
  if (!compute.launch.group.empty() && compute.device == "cuda") {
    compute.device += ":" + std::to_string(compute.launch.local_rank);
  }
}

int run_with_replicas(const Launch& launch, const std::function<int(const train::Replicas&)>& run) {
  if (launch.group.empty()) {
    try {
      return run({});
    } catch (const train::Interrupted&) {
      tell("interrupted\n");
      return interrupted_status();
    }
  }
  const train::Replicas replicas(train::find_group(launch.group));
  const train::InterruptGuard until_reported;  // torchrun ends the others when one has ended
  const auto fail = [&](const std::string& message, int status) {
    if (replicas.group()->is_first_to_report()) {
      tell("ramify: process {} of {}: {}\n", replicas.rank(), replicas.size(), message);
    }
    replicas.group()->leave();
    return status;
  };
  try {
    return run(replicas);
  } catch (const train::Interrupted&) {
    return fail("interrupted", interrupted_status());
  } catch (const train::FailedElsewhere&) {
    replicas.group()->leave();
    return 1;
  } catch (const train::LostProcess& error) {
    return fail(std::string(error.what()) + "; go on from the last checkpoint with --resume", 1);
  } catch (const std::invalid_argument& error) {
    return fail(error.what(), 2);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}

}  // namespace ramify::cli
