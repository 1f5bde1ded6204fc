// Process groups of torch.distributed (c10d): tensors on the CPU go through its Gloo, those on a GPU through its NCCL.
#include <ATen/ops/empty_like.h>

#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "train/process_group.h"

namespace ramify::train {
namespace {

// The first line: torch puts a trace of its own calls behind it.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

template <class Action>
auto unless_lost(const Action& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    throw LostProcess("another process of the run has ended or does not answer (" + first_line(error) + ")");
  }
}

class C10dGroup final : public ProcessGroup {
 public:
  explicit C10dGroup(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  int64_t rank() const override { return group_->getRank(); }
  int64_t size() const override { return group_->getSize(); }

  Wait sum(const at::Tensor& tensor) override {
    std::vector<at::Tensor> one = {tensor};
    auto work = unless_lost([&] { return group_->allreduce(one); });
    return [work] { wait_for(work); };
  }

  std::vector<at::Tensor> gather(const at::Tensor& own) override {
    std::vector<at::Tensor> inputs = {own};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int64_t r = 0; r < size(); ++r) outputs.front().push_back(at::empty_like(own));
    wait_for(unless_lost([&] { return group_->allgather(outputs, inputs); }));
    return outputs.front();
  }

  void copy_from_first(const at::Tensor& tensor) override {
    std::vector<at::Tensor> one = {tensor};
    wait_for(unless_lost([&] { return group_->broadcast(one); }));
  }

  bool is_first_to_report() override {
    try {
      const std::string own = std::to_string(rank());
      return group_->getStore()->compareSet("ramify/report", std::string(), own) == own;
    } catch (const std::exception&) {  // who kept the store has ended: better said twice than not at all
      return true;
    }
  }

  // The store may end with the first process. Who does not come has been killed, or still waits for this one to end.
  void leave() override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    try {
      const auto store = group_->getStore();
      store->add("ramify/left", 1);
      while (rank() == 0 && store->add("ramify/left", 0) < size() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    } catch (const std::exception&) {  // then nobody can ask
    }
  }

 private:
  static void wait_for(const c10::intrusive_ptr<c10d::Work>& work) {
    unless_lost([&] { return work->wait(); });
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::shared_ptr<ProcessGroup> find_group(const std::string& name) {
  try {
    return std::make_shared<C10dGroup>(c10d::resolve_process_group(name));
  } catch (const c10::Error&) {
    throw std::invalid_argument("there is no process group " + name);
  }
}

}  // namespace ramify::train
