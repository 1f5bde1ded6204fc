// Where a model is computed.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace ramify::train {

// Reads `cpu`, `cuda` or `cuda:1`, and loads what torch needs for it. std::invalid_argument with what can be done when
// there is no such device.
c10::Device open_device(const std::string& name);

// Bytes in use at the worst moment so far: of the device's allocator, or of the process on the CPU. -1: not known.
int64_t peak_memory(c10::Device device);

}  // namespace ramify::train
