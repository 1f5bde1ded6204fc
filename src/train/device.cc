#include "train/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceGuard.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <sys/resource.h>

#include <stdexcept>

namespace ramify::train {
namespace {

c10::Device parse_device(const std::string& name) {
  try {
    return c10::Device(name);
  } catch (const c10::Error&) {
    throw std::invalid_argument("there is no device " + name + "; expected cpu, cuda or cuda:N");
  }
}

}  // namespace

c10::Device open_device(const std::string& name) {
  c10::Device device = parse_device(name);
  if (device.is_cpu()) return device;
  if (!device.is_cuda()) throw std::invalid_argument("there is no device " + name + "; expected cpu, cuda or cuda:N");
  // Only torch's CPU half is linked, so that a machine without CUDA can run the program; loading the other one
  // registers its kernels.
  dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (!at::globalContext().hasCUDA()) {
    throw std::invalid_argument("device " + name + ": torch finds no CUDA here; use --device cpu");
  }
  if (!device.has_index()) device.set_index(0);
  if (device.index() >= at::globalContext().getAcceleratorHooksInterface(at::kCUDA).deviceCount()) {
    throw std::invalid_argument("device " + name + ": there is no GPU of this number");
  }
  at::globalContext().lazyInitDevice(at::kCUDA);
  return device;
}

int64_t peak_memory(c10::Device device) {
  if (device.is_cuda()) {
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
    return stats.allocated_bytes[0].peak;
  }
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : -1;
}

}  // namespace ramify::train
