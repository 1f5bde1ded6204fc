// The JSON header of a safetensors file, read with a limit on everything and checked as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace ramify::io {

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as in the format's own library

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // sorted by name; offsets count from the start of the file
  TensorMetadata metadata;
};

// `data_bytes` follow the header, and the tensors must cover them without gap or overlap.
SafetensorsHeader parse_header(const std::string& path, std::string_view json, int64_t data_bytes);

// Elements times bytes; -1 if that is more than 63 bits hold, if a size is negative, or if the dtype is not known.
int64_t tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape);

}  // namespace ramify::io
