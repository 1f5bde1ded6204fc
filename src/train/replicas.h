// The processes of a run, each with a replica of the model, and how they stay alike: what one finds out all are told,
// and what one alone may do (files, messages) is done by the first. One alone is the usual case and costs nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "signal/shares.h"
#include "train/process_group.h"

namespace ramify::train {

// Thrown where others wait for a process that has failed; it says why itself.
class FailedElsewhere : public std::exception {
 public:
  const char* what() const noexcept override { return "another process of the run has failed"; }
};

class Replicas {
 public:
  Replicas() = default;  // one alone
  explicit Replicas(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  int64_t rank() const { return group_ ? group_->rank() : 0; }
  int64_t size() const { return group_ ? group_->size() : 1; }
  bool is_first() const { return rank() == 0; }
  ProcessGroup* group() const { return group_.get(); }  // nullptr: one alone

  // All of these are done together, as those of ProcessGroup.
  bool any(bool own) const;
  void add_up(std::span<double> values) const;  // in place
  std::vector<std::string> gather(std::string own) const;
  std::string tell(std::string of_first) const;  // what the first one has, everywhere
  void copy_from_first(const std::vector<at::Tensor>& tensors) const;
  signal::Member member() const;

  // Whether the bytes of the tensors are the same in all processes.
  bool are_alike(const std::vector<at::Tensor>& tensors) const;

  // Done by the first process alone; the others wait. What it throws ends them, too.
  template <class Action>
  void on_first(const Action& action) const {
    if (!group_) return action();
    std::exception_ptr error;
    if (is_first()) {
      try {
        action();
      } catch (const LostProcess&) {
        throw;
      } catch (...) {
        error = std::current_exception();
      }
    }
    const bool failed = any(error != nullptr);
    if (error) std::rethrow_exception(error);
    if (failed) throw FailedElsewhere();
  }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace ramify::train
