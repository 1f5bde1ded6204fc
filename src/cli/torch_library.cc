#include "torch_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <stdexcept>

namespace ramify::cli {

void* find_torch_function(const char* name) {
  constexpr const char* kFile = "libramify_cli_torch.so";  // found through this library's own search path
  void* library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);    // kept until the program ends
  void* function = library ? dlsym(library, name) : nullptr;
  if (!function) {
    throw std::runtime_error(fmt::format(
        "this command needs torch, and {} does not load: {}; build with RAMIFY_TORCH=ON", kFile, dlerror()));
  }
  return function;
}

}  // namespace ramify::cli
