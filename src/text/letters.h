// Code points of valid UTF-8, one after the other or backwards.
#pragma once

#include <unicode/umachine.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ramify::text {

// The code point at `at`, which moves behind it; U+FFFD for a broken sequence.
inline UChar32 next_letter(std::string_view text, size_t& at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  UChar32 letter;
  U8_NEXT_OR_FFFD(bytes, at, text.size(), letter);
  return letter;
}

// The code point before `at`, which moves to its first byte.
inline UChar32 previous_letter(std::string_view text, size_t& at) {
  const size_t begin = at - std::min<size_t>(at, U8_MAX_LENGTH);
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data()) + begin;
  auto place = static_cast<int32_t>(at - begin);
  UChar32 letter;
  U8_PREV_OR_FFFD(bytes, 0, place, letter);
  at = begin + static_cast<size_t>(place);
  return letter;
}

inline void append_letter(std::string& text, UChar32 letter) {
  uint8_t bytes[U8_MAX_LENGTH];
  size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, letter);
  text.append(reinterpret_cast<const char*>(bytes), length);
}

}  // namespace ramify::text
