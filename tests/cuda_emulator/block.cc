// The turns of a block's threads, and what they share.
#include "cuda_emulator/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "cuda_emulator/fiber.h"

namespace ramify::cuda_emulator {

Place place;

namespace {

struct Copy {
  uint32_t to;
  const void* from;
  uint32_t size;
  int group;
};

struct Thread {
  explicit Thread(int index) : fiber(index) {}

  Fiber fiber;
  enum { running, at_barrier, done } state = done;
  std::vector<Copy> copies;
  int groups = 0;  // committed
};

struct Warp {
  ErasedRule rule = nullptr;
  int arrived = 0;
  int64_t exchanges = 0;
  const void* given[kWarp];
  void* taken[kWarp];
};

// The block that runs; there is one at a time.
std::vector<std::unique_ptr<Thread>> threads;
std::vector<Warp> warps;
alignas(128) char shared_memory[kSharedMemory];
size_t shared_size;
void (*block_body)(void*);
void* block_argument;

Thread& this_thread() {
  return *threads[place.thread.x];
}

void run_thread() {
  block_body(block_argument);
  this_thread().state = Thread::done;
  this_thread().fiber.pause();
}

void start_threads(int count) {
  while (static_cast<int>(threads.size()) < count) threads.push_back(std::make_unique<Thread>(threads.size()));
  for (int t = 0; t < count; ++t) {
    Thread& thread = *threads[t];
    thread.state = Thread::running, thread.copies.clear(), thread.groups = 0;
    thread.fiber.start(run_thread);
  }
  warps.assign(count / kWarp, {});
}

// Until each lane is done or at a barrier.
void run_warp(int w, bool backwards) {
  const Warp& warp = warps[w];
  for (bool moves = true; moves;) {
    moves = false;
    for (int i = 0; i < kWarp; ++i) {
      const int t = kWarp * w + (backwards ? kWarp - 1 - i : i);
      Thread& thread = *threads[t];
      if (thread.state != Thread::running) continue;
      place.thread.x = t;
      const int64_t exchanges = warp.exchanges;
      const int arrived = warp.arrived;
      thread.fiber.resume();
      moves = moves || thread.state != Thread::running || warp.exchanges != exchanges || warp.arrived != arrived;
    }
  }
  for (int t = kWarp * w; t < kWarp * (w + 1); ++t) {
    place.thread.x = t;
    if (threads[t]->state == Thread::running) fail("waits for lanes that are at a barrier or done");
    if (threads[t]->state != threads[kWarp * w]->state) fail("is done or at a barrier, unlike other lanes of its warp");
  }
}

void run_block(std::minstd_rand& random) {
  const int count = static_cast<int>(place.block_size.x);
  std::fill_n(shared_memory, shared_size, '\xff');  // NaN in every type
  start_threads(count);
  std::vector<int> order(count / kWarp);
  std::iota(order.begin(), order.end(), 0);
  for (bool is_left = true; is_left;) {
    std::shuffle(order.begin(), order.end(), random);
    for (const int w : order) run_warp(w, random() % 2 != 0);
    is_left = false;
    for (int t = 0; t < count; ++t) {
      if (threads[t]->state == Thread::done) continue;
      threads[t]->state = Thread::running, is_left = true;
    }
  }
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "emulated kernel: thread %u of block %u, %u %s\n", place.thread.x, place.block.x, place.block.y,
               what);
  std::abort();
}

void exchange(const void* given, void* taken, ErasedRule rule) {
  Warp& warp = warps[place.thread.x / kWarp];
  const unsigned lane = place.thread.x % kWarp;
  if (warp.arrived == 0) warp.rule = rule;
  if (warp.rule != rule) fail("is at another instruction than other lanes of its warp");
  warp.given[lane] = given, warp.taken[lane] = taken;
  if (++warp.arrived == kWarp) {
    rule(warp.given, warp.taken);  // which lie on the stacks of fibers that wait
    warp.arrived = 0, ++warp.exchanges;
    return;
  }
  Fiber& fiber = this_thread().fiber;
  for (const int64_t before = warp.exchanges; warp.exchanges == before;) fiber.pause();
}

void wait_for_block() {
  this_thread().state = Thread::at_barrier;
  this_thread().fiber.pause();
}

char* shared_bytes(uint32_t offset, size_t size, size_t alignment) {
  if (offset + size > shared_size) fail("is outside of shared memory");
  if (offset % alignment != 0) fail("is between the places of what it reads or writes in shared memory");
  return shared_memory + offset;
}

void start_copy(uint32_t to, const void* from, uint32_t size) {
  shared_bytes(to, size, size);
  if (reinterpret_cast<uintptr_t>(from) % size != 0) fail("copies from between the places of what it copies");
  this_thread().copies.push_back({to, from, size, this_thread().groups});
}

void commit_copies() {
  ++this_thread().groups;
}

void wait_for_copies(int pending_groups) {
  Thread& thread = this_thread();
  std::erase_if(thread.copies, [&](const Copy& copy) {
    if (copy.group >= thread.groups - pending_groups) return false;
    std::memcpy(shared_memory + copy.to, copy.from, copy.size);
    return true;
  });
}

void run_blocks(Size grid, int num_threads, size_t shared, void (*body)(void*), void* argument) {
  static std::minstd_rand random(1);  // goes on from launch to launch: the same one again has another order
  place.block_size = static_cast<unsigned>(num_threads), place.grid_size = grid;
  shared_size = shared, block_body = body, block_argument = argument;
  if (num_threads % kWarp != 0 || num_threads > 1024) fail("is in a block that no GPU takes");
  if (shared > kSharedMemory) fail("has more shared memory than any GPU");
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      place.block = {x, y, 0};
      run_block(random);
    }
  }
}

}  // namespace ramify::cuda_emulator
