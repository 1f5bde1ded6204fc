// How torch is set up for a command, and how a command ends that was interrupted.
#pragma once

#include "training_commands.h"

namespace ramify::cli {

void apply_compute_options(ComputeOptions& compute);

int interrupted_status();  // 128 plus the signal, as shells do

}  // namespace ramify::cli
