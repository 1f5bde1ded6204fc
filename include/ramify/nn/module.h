// A torch module whose parameters are found by name, so that others can be put in their place.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace ramify::nn {

class Module : public torch::nn::Module {
 public:
  // Puts `tensors` in the place of named_parameters(), then named_buffers(), in that order: from then on the module
  // computes with those very parameters, and with the values of those buffers.
  void share(const std::vector<at::Tensor>& tensors);

 protected:
  const at::Tensor& parameter(const std::string& name) const { return parameters_[name]; }

 private:
  size_t share_parameters(const std::vector<at::Tensor>& tensors, size_t next);
};

}  // namespace ramify::nn
