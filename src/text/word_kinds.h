// What a character is to the splitting of words.
#pragma once

#include <unicode/umachine.h>

#include <array>
#include <cstdint>

namespace ramify::text {

enum class WordKind : uint8_t {
  space,       // separates words
  letter,      // a letter or a mark: part of a word
  digit,       // part of a word
  apostrophe,  // part of a word between letters
  symbol,      // a word by itself
  ignored      // invisible, part of nothing
};

extern const std::array<WordKind, 128> kAsciiWordKinds;

WordKind wide_word_kind(UChar32 letter);  // not ASCII

inline WordKind word_kind(UChar32 letter) {
  return letter < 0x80 ? kAsciiWordKinds[static_cast<size_t>(letter)] : wide_word_kind(letter);
}

// Thai, Khmer, Chinese, Japanese, ...: only a dictionary knows where their words end.
bool writes_no_spaces(UChar32 letter);

// What is written instead of `letter`: its small letter; for quotation marks and apostrophes those of a keyboard.
UChar32 plain_letter(UChar32 letter);

}  // namespace ramify::text
