// The levels of a text above its words: paragraphs and sentences, as spans of bytes. The text is valid UTF-8.
// No span is empty, or begins or ends with white space; spans ascend; together they hold every other character.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ramify::text {

struct Span {
  size_t begin = 0;
  size_t end = 0;

  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
  bool operator==(const Span&) const = default;
};

// Parts between blank lines.
std::vector<Span> paragraphs(std::string_view text);
void paragraphs(std::string_view text, std::vector<Span>& spans);  // replaces `spans`

// Unicode's default sentence boundaries (UAX 29, as ICU has them). The end of a line ends a sentence.
std::vector<Span> sentences(std::string_view text);
void sentences(std::string_view text, std::vector<Span>& spans);  // replaces `spans`

// Where sentences begin, before white space is trimmed: byte offsets, ascending, the last one text.size(); 0 is left
// out.
void sentence_breaks(std::string_view text, std::vector<size_t>& breaks);  // replaces `breaks`

}  // namespace ramify::text
