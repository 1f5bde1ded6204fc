// Runs CUDA kernels on the CPU, for tests where there is no GPU: the kernels' own files, compiled as C++ with the
// headers of this folder in the place of CUDA's and of kernels/cuda/instructions.h.
//
// Blocks run one after the other, the threads of a block as fibers on one thread of the CPU. A thread runs until it
// meets others, lanes at an instruction of the whole warp, warps at a barrier, and the order in which they run is
// another for each block, so that what lacks a barrier shows as other bits. What a GPU leaves undefined is made
// visible: shared memory begins as NaN and ends where the launch said, background copies arrive when they are waited
// for and not before, and lanes that come to different instructions, or wait for each other for ever, end the process
// with a message.
//
// What it cannot show is in docs/kernels.md, "Without a GPU".
#pragma once

#include <cstddef>
#include <cstdint>

namespace ramify::cuda_emulator {

constexpr int kWarp = 32;
constexpr size_t kSharedMemory = 227 << 10;  // of an H100

// CUDA's dim3, to which numbers convert.
struct Size {
  Size(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};

// Of the thread that runs.
struct Place {
  Size thread, block, block_size, grid_size;
};
extern Place place;

// Ends the process, naming the thread that runs.
[[noreturn]] void fail(const char* what);

// What the lanes of a warp hand in, or what they get.
template <class Value, class Pointer>
class Lanes {
 public:
  explicit Lanes(Pointer const* lanes) : lanes_(lanes) {}
  Value& operator[](int lane) const { return *static_cast<Value*>(lanes_[lane]); }

 private:
  Pointer const* lanes_;
};

// Waits for all lanes of the warp; the last one applies the rule, by which lanes are also known to be at one
// instruction.
using ErasedRule = void (*)(const void* const* given, void* const* taken);
void exchange(const void* given, void* taken, ErasedRule rule);

// `rule(given, taken)` computes what each lane gets from what all have given.
template <class Taken, class Given, class Rule>
Taken exchange(const Given& given, Rule) {
  Taken taken;
  exchange(&given, &taken, [](const void* const* all_given, void* const* all_taken) {
    Rule()(Lanes<const Given, const void*>(all_given), Lanes<Taken, void*>(all_taken));
  });
  return taken;
}

void wait_for_block();

// Bytes of the block's dynamic shared memory; fails outside of it and where they are not aligned.
char* shared_bytes(uint32_t offset, size_t size, size_t alignment);

// Copies to shared memory in the background: they arrive when the thread waits for their group.
void start_copy(uint32_t to, const void* from, uint32_t size);
void commit_copies();
void wait_for_copies(int pending_groups);

void run_blocks(Size grid, int threads, size_t shared, void (*body)(void*), void* argument);

}  // namespace ramify::cuda_emulator
