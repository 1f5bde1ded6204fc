#include "io/error.h"

#include <cerrno>
#include <cstring>

namespace ramify::io {

std::string printable(std::string_view name) {
  constexpr size_t kMaxBytes = 120;
  constexpr std::string_view kDigits = "0123456789abcdef";
  const bool cut = name.size() > kMaxBytes;
  if (cut) {
    size_t end = kMaxBytes;
    while (end > kMaxBytes - 4 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // not inside a letter
    name = name.substr(0, end);
  }
  std::string text = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      text += c;
    }
  }
  return text + (cut ? "...\"" : "\"");
}

std::string json_reason(std::string_view message) {
  constexpr size_t kLongest = 200;
  if (const size_t end = message.find("] "); message.starts_with("[json.exception") && end != std::string_view::npos) {
    message.remove_prefix(end + 2);
  }
  if (message.size() <= kLongest) return std::string(message);
  size_t end = kLongest;
  while (end > kLongest - 4 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;  // not inside a letter
  return std::string(message.substr(0, end)) + " ...";
}

Error system_error(const std::string& path, const std::string& action) {
  return Error(path + ": cannot " + action + ": " + std::strerror(errno));
}

}  // namespace ramify::io
