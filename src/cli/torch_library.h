// The half of the program that needs torch is a library of its own, loaded by the commands that use it: loading torch
// takes a third of a second, which `ramify --version` should not wait for.
#pragma once

namespace ramify::cli {

// The function of that library with this (unmangled) name. Throws std::runtime_error when it cannot be loaded.
void* find_torch_function(const char* name);

template <class Function>
Function* torch_function(const char* name) {
  return reinterpret_cast<Function*>(find_torch_function(name));
}

}  // namespace ramify::cli
