#include "ops/current_stream.h"

#include <c10/cuda/CUDAStream.h>

namespace ramify {

bool has_torch_cuda() {
  return true;
}

void* current_stream(c10::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

}  // namespace ramify
