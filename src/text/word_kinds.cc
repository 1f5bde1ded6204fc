#include "text/word_kinds.h"

#include <unicode/uchar.h>

#include <array>

namespace ramify::text {
namespace {

constexpr UChar32 kZeroWidthSpace = 0x200B, kNonJoiner = 0x200C, kJoiner = 0x200D;

bool is_apostrophe(UChar32 letter) {
  return letter == '\'' || letter == 0x2018 || letter == 0x2019 || letter == 0x02BC;
}

bool is_variation_selector(UChar32 letter) {  // how an emoji is drawn
  return letter >= 0xFE00 && letter <= 0xFE0F;
}

constexpr WordKind ascii_kind(int letter) {
  if (letter <= ' ' || letter == 0x7F) return WordKind::space;
  if (letter >= '0' && letter <= '9') return WordKind::digit;
  if ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z') return WordKind::letter;
  return letter == '\'' ? WordKind::apostrophe : WordKind::symbol;
}

constexpr std::array<WordKind, 128> ascii_kinds() {
  std::array<WordKind, 128> kinds = {};
  for (int letter = 0; letter < 128; ++letter) kinds[static_cast<size_t>(letter)] = ascii_kind(letter);
  return kinds;
}

}  // namespace

const std::array<WordKind, 128> kAsciiWordKinds = ascii_kinds();

WordKind wide_word_kind(UChar32 letter) {
  if (is_apostrophe(letter)) return WordKind::apostrophe;
  if (u_isUWhiteSpace(letter) || letter == kZeroWidthSpace) return WordKind::space;
  if (letter == kNonJoiner || letter == kJoiner) return WordKind::letter;  // they shape the word that they are in
  const uint32_t type = U_MASK(u_charType(letter));
  if (type & U_GC_CC_MASK) return WordKind::space;
  if ((type & U_GC_C_MASK) || is_variation_selector(letter)) return WordKind::ignored;
  if (type & (U_GC_L_MASK | U_GC_M_MASK)) return WordKind::letter;
  return type & U_GC_ND_MASK ? WordKind::digit : WordKind::symbol;
}

bool writes_no_spaces(UChar32 letter) {
  if (letter < 0x0E00) return false;
  const int32_t breaks = u_getIntPropertyValue(letter, UCHAR_LINE_BREAK);
  return breaks == U_LB_COMPLEX_CONTEXT || breaks == U_LB_IDEOGRAPHIC || breaks == U_LB_CONDITIONAL_JAPANESE_STARTER;
}

UChar32 plain_letter(UChar32 letter) {
  if (is_apostrophe(letter)) return '\'';
  if (letter == 0x201C || letter == 0x201D) return '"';
  return u_tolower(letter);
}

}  // namespace ramify::text
