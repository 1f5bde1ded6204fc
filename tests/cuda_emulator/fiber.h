// A function with a stack of its own, which can stop in the middle and go on later.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace ramify::cuda_emulator {

class Fiber {
 public:
  // Neighbours in `place` run in turn: their stacks begin in different lines of the cache.
  explicit Fiber(int place);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() begins with this function, which must end in a pause() that nothing follows.
  void start(void (*function)());
  // Goes on where the fiber stopped, until it pauses.
  void resume();
  // Called inside: goes back to where the fiber was resumed.
  void pause();

 private:
  char* memory_;
  char* top_;  // of the stack, which grows down
#if defined(__x86_64__)
  void* inside_ = nullptr;
  void* outside_ = nullptr;
#else
  ucontext_t inside_, outside_;
#endif
};

}  // namespace ramify::cuda_emulator
