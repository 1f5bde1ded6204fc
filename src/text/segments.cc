#include "text/segments.h"

#include <unicode/uchar.h>

#include "text/letters.h"

namespace ramify::text {
namespace {

bool is_space(UChar32 letter) {
  if (letter < 0x80) return letter == ' ' || (letter >= '\t' && letter <= '\r');
  return u_isUWhiteSpace(letter);
}

// [begin, end) without white space at its ends, unless nothing is left.
void add_trimmed(std::string_view text, size_t begin, size_t end, std::vector<Span>& spans) {
  while (begin < end) {
    size_t next = begin;
    if (!is_space(next_letter(text.substr(0, end), next))) break;
    begin = next;
  }
  while (begin < end) {
    size_t last = end;
    if (!is_space(previous_letter(text, last))) break;
    end = last;
  }
  if (begin < end) spans.push_back({begin, end});
}

// The place after the end of the line at `at`; `at` itself if none is there.
size_t after_line_end(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("\r\n")) return at + 2;
  return rest.starts_with('\n') || rest.starts_with('\r') ? at + 1 : at;
}

// The place after the white space inside a line.
size_t skip_blanks(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    const UChar32 letter = next_letter(text, next);
    if (letter == '\n' || letter == '\r' || !is_space(letter)) break;
    at = next;
  }
  return at;
}

}  // namespace

void paragraphs(std::string_view text, std::vector<Span>& spans) {
  spans.clear();
  size_t begin = 0;
  size_t at = 0;
  while (true) {
    while (at < text.size() && text[at] != '\n' && text[at] != '\r') ++at;
    if (at == text.size()) break;
    const size_t next_line = after_line_end(text, at);
    const size_t blank_end = skip_blanks(text, next_line);
    if (after_line_end(text, blank_end) != blank_end) {
      add_trimmed(text, begin, at, spans);
      begin = blank_end;
    }
    at = blank_end;
  }
  add_trimmed(text, begin, text.size(), spans);
}

std::vector<Span> paragraphs(std::string_view text) {
  std::vector<Span> spans;
  paragraphs(text, spans);
  return spans;
}

void sentences(std::string_view text, std::vector<Span>& spans) {
  thread_local std::vector<size_t> breaks;
  sentence_breaks(text, breaks);
  spans.clear();
  size_t begin = 0;
  for (const size_t end : breaks) {
    add_trimmed(text, begin, end, spans);
    begin = end;
  }
}

std::vector<Span> sentences(std::string_view text) {
  std::vector<Span> spans;
  sentences(text, spans);
  return spans;
}

}  // namespace ramify::text
