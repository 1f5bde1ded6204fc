// Tensors as the CPU kernels take them: [rows, heads, dim], the last stride 1.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/attention.h"

namespace ramify {

inline cpu::Storage storage_of(at::ScalarType dtype) {
  return dtype == at::kFloat      ? cpu::Storage::float32
         : dtype == at::kBFloat16 ? cpu::Storage::bfloat16
                                  : cpu::Storage::float16;
}

inline cpu::Rows rows_of(const at::Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.stride(0), tensor.stride(1)};
}

inline at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.stride(2) == 1 || tensor.size(2) <= 1 ? tensor : tensor.contiguous();
}

}  // namespace ramify
