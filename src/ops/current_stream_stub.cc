// Stands in for current_stream.cc where torch is a build without CUDA.
#include <c10/util/Exception.h>

#include "ops/current_stream.h"

namespace ramify {

bool has_torch_cuda() {
  return false;
}

void* current_stream(c10::Device device) {
  TORCH_CHECK(false, "attention: ", device, " with a build of torch without CUDA");
}

}  // namespace ramify
