#include "text/utf8.h"

#include <unicode/utf8.h>

#include <cstdint>
#include <cstring>

namespace ramify::text {
namespace {

// The place after the ASCII bytes that begin at `at`.
size_t skip_ascii(std::string_view text, size_t at) {
  while (at + 8 <= text.size()) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, 8);
    if (bytes & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// Passes one sequence, whole or broken, from `at` on; false: it is broken.
bool next_sequence(std::string_view text, size_t& at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  UChar32 letter;
  U8_NEXT(bytes, at, text.size(), letter);
  return letter >= 0;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    if (!next_sequence(text, at)) return false;
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t ascii_end = skip_ascii(text, at);
    result.append(text, at, ascii_end - at);
    at = ascii_end;
    if (at == text.size()) break;
    if (next_sequence(text, at)) {
      result.append(text, ascii_end, at - ascii_end);
    } else {
      result += "\xEF\xBF\xBD";
    }
  }
  return result;
}

}  // namespace ramify::text
