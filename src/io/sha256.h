// SHA-256 as 64 lower-case hexadecimal digits.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "io/error.h"

namespace ramify::io {

std::string sha256_hex(std::string_view bytes);
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_file(const std::string& path);

}  // namespace ramify::io
