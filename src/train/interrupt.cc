#include "train/interrupt.h"

#include <atomic>

namespace ramify::train {
namespace {

// A handler can reach nothing but a global.
std::atomic<int> caught_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int number) {
  caught_signal = number;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  caught_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

int InterruptGuard::caught() {
  return caught_signal;
}

}  // namespace ramify::train
