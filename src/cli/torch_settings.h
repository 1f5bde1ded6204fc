// How torch is set up for a command, and how a command ends that was interrupted.
#pragma once

#include <functional>

#include "train/replicas.h"
#include "training_commands.h"

namespace ramify::cli {

void apply_compute_options(ComputeOptions& compute);

int interrupted_status();  // 128 plus the signal, as shells do

// Training by this process alone, or with those that it was launched with. Of the latter one says what went wrong, and
// all end with it. Gives the exit status.
int run_with_replicas(const Launch& launch, const std::function<int(const train::Replicas&)>& run);

}  // namespace ramify::cli
