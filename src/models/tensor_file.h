// Named tensors in a safetensors file.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"

namespace ramify::models {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

void save_tensors(const std::string& path, const NamedTensors& tensors, const io::TensorMetadata& metadata = {});

// Copies every tensor of the file into the one of the same name. io::Error, before anything is changed, unless names,
// shapes and dtypes are just the same.
void load_tensors_into(const std::string& path, const NamedTensors& tensors);

// One tensor of a file, as it is stored there.
at::Tensor read_tensor(const io::SafetensorsReader& file, const io::TensorInfo& info);

// io::Error, with the name, unless the stored tensor has the shape of `tensor` and floating-point values.
void check_tensor(const io::SafetensorsReader& file, const io::TensorInfo& info, const at::Tensor& tensor);

}  // namespace ramify::models
