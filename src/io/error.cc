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

Error system_error(const std::string& path, const std::string& action) {
  return Error(path + ": cannot " + action + ": " + std::strerror(errno));
}

}  // namespace ramify::io
