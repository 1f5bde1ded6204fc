// Several processes that train one model together, as the trainer sees them: the few things that they do at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace ramify::train {

// Another process has ended, or does not answer.
class LostProcess : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ProcessGroup {
 public:
  using Wait = std::function<void()>;

  virtual ~ProcessGroup() = default;

  virtual int64_t rank() const = 0;  // from 0
  virtual int64_t size() const = 0;

  // These are done together: every process calls the same ones in the same order, with tensors of the same shape, dense
  // and contiguous. LostProcess if another one cannot take part any more.
  virtual Wait sum(const at::Tensor& tensor) = 0;                     // in place; done when what it gives has returned
  virtual std::vector<at::Tensor> gather(const at::Tensor& own) = 0;  // of all, in the order of ranks
  virtual void copy_from_first(const at::Tensor& tensor) = 0;         // in place, from rank 0

  // By each for itself, when it has failed. Whether it is to say why: no process has asked before.
  virtual bool is_first_to_report() = 0;
  // Before it ends: lets those that have failed in the same way ask, too.
  virtual void leave() = 0;
};

// The group of that name that torch.distributed has made in this process. std::invalid_argument if there is none.
std::shared_ptr<ProcessGroup> find_group(const std::string& name);

}  // namespace ramify::train
