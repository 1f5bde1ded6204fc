// Ctrl-C and SIGTERM as a question that long work asks between its steps, so that it can save and end in order.
#pragma once

#include <csignal>
#include <exception>

namespace ramify::train {

// While one lives, the first SIGINT or SIGTERM is only remembered; the second one ends the process as usual.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that came, or 0.
  static int caught();

 private:
  struct sigaction old_interrupt_, old_terminate_;
};

// Thrown by work that has nothing to save when a signal has come.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
  static void throw_if_caught() {
    if (InterruptGuard::caught() != 0) throw Interrupted();
  }
};

}  // namespace ramify::train
