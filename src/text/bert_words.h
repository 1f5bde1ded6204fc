// The rules by which BERT splits a text into words before WordPiece: control characters dropped, accents and case
// removed where wanted, white space, punctuation and Chinese characters as boundaries.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/segments.h"

namespace ramify::text {

struct BertRules {
  bool lowercase = true;
  bool strip_accents = true;
  bool clean_text = true;
  bool split_chinese = true;  // every Chinese character is a word
};

// Gives the words of one text (valid UTF-8), one after the other. Memory does not grow with the text.
class BertWords {
 public:
  // Of longer words than `max_letters` only the extent is kept.
  BertWords(std::string_view text, const BertRules& rules, size_t max_letters)
      : text_(text), rules_(rules), max_letters_(max_letters) {}

  bool next();  // false: no more words
  bool overlong() const { return num_letters_ > max_letters_; }
  std::string_view word() const { return word_; }

  // Where the word comes from in the text, or bytes [begin, end) of word().
  Span source() const { return source_; }
  Span source(size_t begin, size_t end) const { return {sources_[begin].begin, sources_[end - 1].end}; }

 private:
  // alone: a word by itself; barrier: stripped, but marks do not move across it
  enum class Role : uint8_t { space, part, alone, barrier };
  struct Letter {
    int32_t code;
    Role role;
    Span source;
  };

  bool refill();
  void add_ascii(int32_t code, Span source);
  void add_wide(int32_t code, Span source);
  void add_cased(int32_t code, Role role, Span source);
  void order_marks();
  void push(const Letter& letter);

  std::string_view text_;
  BertRules rules_;
  size_t max_letters_;
  size_t at_ = 0;                // in text_
  std::vector<Letter> letters_;  // normalised; those before next_letter_ have been given
  size_t next_letter_ = 0;
  bool has_marks_ = false;

  std::string word_;
  std::vector<Span> sources_;  // of each byte of word_
  size_t num_letters_ = 0;
  Span source_;
};

}  // namespace ramify::text
