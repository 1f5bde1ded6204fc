#include "models/tensor_file.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "io/safetensors.h"

namespace ramify::models {
namespace {

struct DtypeName {
  at::ScalarType type;
  std::string_view name;
};
constexpr std::array<DtypeName, 6> kDtypes = {{{at::kFloat, "F32"},
                                               {at::kDouble, "F64"},
                                               {at::kHalf, "F16"},
                                               {at::kBFloat16, "BF16"},
                                               {at::kLong, "I64"},
                                               {at::kByte, "U8"}}};

std::string dtype_name(const std::string& tensor, at::ScalarType type) {
  for (const DtypeName& dtype : kDtypes) {
    if (dtype.type == type) return std::string(dtype.name);
  }
  throw io::Error(tensor + ": tensors of this dtype are not stored");
}

at::ScalarType dtype_of(const std::string& path, const io::TensorInfo& info) {
  for (const DtypeName& dtype : kDtypes) {
    if (dtype.name == info.dtype) return dtype.type;
  }
  throw io::Error(path + ": tensor " + info.name + " has the dtype " + info.dtype + ", which is not read here");
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

void check_shape(const std::string& path, const io::TensorInfo& info, const at::Tensor& tensor) {
  if (tensor.sizes() == at::IntArrayRef(info.shape)) return;
  throw io::Error(path + ": tensor " + info.name + " is " + shape_text(info.shape) + "; expected " +
                  shape_text(tensor.sizes()));
}

}  // namespace

at::Tensor read_tensor(const io::SafetensorsReader& file, const io::TensorInfo& info) {
  at::Tensor tensor = at::empty(info.shape, at::dtype(dtype_of(file.path(), info)));
  file.read(info.name, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()});
  return tensor;
}

void check_tensor(const io::SafetensorsReader& file, const io::TensorInfo& info, const at::Tensor& tensor) {
  check_shape(file.path(), info, tensor);
  if (!at::isFloatingType(dtype_of(file.path(), info))) {
    throw io::Error(file.path() + ": tensor " + info.name + " is " + info.dtype + "; expected F32, F16 or BF16");
  }
}

void save_tensors(const std::string& path, const NamedTensors& tensors, const io::TensorMetadata& metadata) {
  std::vector<at::Tensor> kept;  // until the file is written
  std::vector<io::TensorBytes> bytes;
  for (const auto& [name, tensor] : tensors) {
    kept.push_back(tensor.detach().to(at::kCPU).contiguous());
    bytes.push_back({.name = name,
                     .dtype = dtype_name(name, tensor.scalar_type()),
                     .shape = kept.back().sizes().vec(),
                     .bytes = {static_cast<const std::byte*>(kept.back().const_data_ptr()), kept.back().nbytes()}});
  }
  io::write_safetensors(path, bytes, metadata);
}

void load_tensors_into(const std::string& path, const NamedTensors& tensors) {
  const io::SafetensorsReader reader(path);
  std::map<std::string, at::Tensor> wanted(tensors.begin(), tensors.end());
  for (const io::TensorInfo& info : reader.tensors()) {
    const auto found = wanted.find(info.name);
    if (found == wanted.end()) throw io::Error(path + ": tensor " + info.name + " is not part of this model");
    check_shape(path, info, found->second);
    if (found->second.scalar_type() != dtype_of(path, info)) {
      throw io::Error(path + ": tensor " + info.name + " is " + info.dtype + "; expected " +
                      dtype_name(info.name, found->second.scalar_type()));
    }
  }
  for (const auto& [name, tensor] : wanted) {
    if (!reader.find(name)) throw io::Error(path + ": tensor " + name + " is missing");
  }
  const at::NoGradGuard no_grad;
  for (const io::TensorInfo& info : reader.tensors()) wanted.at(info.name).copy_(read_tensor(reader, info));
}

}  // namespace ramify::models
