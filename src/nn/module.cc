#include "ramify/nn/module.h"

namespace ramify::nn {

size_t Module::share_parameters(const std::vector<at::Tensor>& tensors, size_t next) {
  for (auto& entry : parameters_) entry.value() = tensors[next++];
  for (const auto& child : children()) {
    auto* module = child->as<Module>();
    TORCH_INTERNAL_ASSERT(module, "a module of another kind: ", child->name());
    next = module->share_parameters(tensors, next);
  }
  return next;
}

void Module::share(const std::vector<at::Tensor>& tensors) {
  const auto old = named_parameters();
  const auto old_buffers = named_buffers();
  TORCH_CHECK_VALUE(tensors.size() == old.size() + old_buffers.size(), "share: ", tensors.size(),
                    " tensors; the module has ", old.size(), " parameters and ", old_buffers.size(), " buffers");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& slot = i < old.size() ? old[i] : old_buffers[i - old.size()];
    TORCH_CHECK_VALUE(tensors[i].sizes() == slot.value().sizes(), "share: ", slot.key(), " has shape ",
                      tensors[i].sizes(), "; expected ", slot.value().sizes());
  }
  share_parameters(tensors, 0);
  for (size_t i = 0; i < old_buffers.size(); ++i) {
    at::Tensor buffer = old_buffers[i].value();
    buffer.set_data(tensors[old.size() + i]);
  }
}

}  // namespace ramify::nn
