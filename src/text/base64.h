// Bytes as text for JSON documents (RFC 4648, with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ramify::text {

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);  // nothing: not base64

}  // namespace ramify::text
