// The whole command line as one function, for the program and for `python -m ramify`.
#pragma once

extern "C" {

// One of the processes that torchrun has started; how they find each other is torch.distributed's matter.
struct RamifyLaunch {
  const char* group;           // name of the process group
  int rank;                    // in it
  int local_rank, local_size;  // among those of this machine
};

// Gives the exit status: 0 when done, 1 when it failed, 2 for bad usage. `launch`: nullptr for a process of its own.
int ramify_command_line(int argc, char** argv, const RamifyLaunch* launch);
}
