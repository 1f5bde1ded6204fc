#include "text/utf8.h"

#include <unicode/utf8.h>

#include <algorithm>
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

// Appends the text to `result`, with U+FFFD for what is broken, and tells of each: its place there and in the text.
template <class Tell>
void copy_repaired(std::string_view text, std::string& result, Tell tell) {
  constexpr std::string_view kMark = "\xEF\xBF\xBD";
  for (size_t at = 0; at < text.size();) {
    const size_t ascii_end = skip_ascii(text, at);
    result.append(text, at, ascii_end - at);
    at = ascii_end;
    if (at == text.size()) break;
    if (next_sequence(text, at)) {
      result.append(text, ascii_end, at - ascii_end);
    } else {
      result += kMark;
      tell(Span{result.size() - kMark.size(), result.size()}, Span{ascii_end, at});
    }
  }
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
  copy_repaired(text, result, [](Span, Span) {});
  return result;
}

RepairedUtf8::RepairedUtf8(std::string_view broken) {
  text_.reserve(broken.size());
  copy_repaired(broken, text_, [&](Span mark, Span source) { repairs_.push_back({mark, source}); });
}

size_t RepairedUtf8::source_of(size_t place, bool is_end) const {
  const auto behind = std::partition_point(repairs_.begin(), repairs_.end(),
                                           [&](const Repair& repair) { return repair.mark.begin < place; });
  if (behind == repairs_.begin()) return place;
  const Repair& last = *(behind - 1);
  if (place >= last.mark.end) return last.source.end + (place - last.mark.end);
  return is_end ? last.source.end : last.source.begin;
}

Span RepairedUtf8::source(Span span) const {
  return {source_of(span.begin, false), source_of(span.end, true)};
}

}  // namespace ramify::text
