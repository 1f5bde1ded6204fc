// A safetensors file from its header's text: the tests write by hand what no writer would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ramify::testing {

inline std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i & 0xFF);
  return bytes;
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data = "") {
  return length_bytes(header.size()) + std::string(header) + std::string(data);
}

}  // namespace ramify::testing
