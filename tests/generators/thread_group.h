// Threads in the place of processes, which wait for each other.
#pragma once

#include <barrier>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace ramify::testing {

// What members exchange, whatever it is; one slot each.
template <class Value>
class Exchange {
 public:
  explicit Exchange(int64_t size) : slots_(static_cast<size_t>(size)), barrier_(size) {}

  std::vector<Value> gather(int64_t rank, Value own) {
    slots_[static_cast<size_t>(rank)] = std::move(own);
    barrier_.arrive_and_wait();
    std::vector<Value> all = slots_;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::vector<Value> slots_;
  std::barrier<> barrier_;
};

// Calls work(rank) in a thread for each; throws what the first of them threw. All or none must throw, as in between
// they wait for each other.
template <class Work>
void run_members(int64_t size, const Work& work) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(rank);
        } catch (...) {
          errors[static_cast<size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace ramify::testing
