// The CUDA stream that torch's operations go to.
#pragma once

#include <c10/core/Device.h>

namespace ramify {

// Whether torch is a build with CUDA.
bool has_torch_cuda();

// cudaStream_t of the calling thread for a device.
void* current_stream(c10::Device device);

}  // namespace ramify
