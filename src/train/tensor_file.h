// Named tensors in a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace ramify::train {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

void save_tensors(const std::string& path, const NamedTensors& tensors);

// Copies every tensor of the file into the one of the same name. io::Error, before anything is changed, unless names,
// shapes and dtypes are just the same.
void load_tensors_into(const std::string& path, const NamedTensors& tensors);

}  // namespace ramify::train
