#include "text/bert_words.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <stdexcept>

#include "text/letters.h"

namespace ramify::text {
namespace {

constexpr size_t kChunkLetters = 1024;

// Control, format and private characters.
bool is_control(UChar32 c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < ' ' || c == 0x7F;
  return (U_GET_GC_MASK(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) != 0;
}

bool is_chinese(UChar32 c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_punctuation(UChar32 c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  return (U_GET_GC_MASK(c) & U_GC_P_MASK) != 0;
}

const icu::Normalizer2& decomposer() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* instance = icu::Normalizer2::getNFDInstance(status);
  if (U_FAILURE(status)) throw std::runtime_error("wordpiece: ICU has no data for normalisation");
  return *instance;
}

}  // namespace

void BertWords::add_ascii(int32_t code, Span source) {
  const bool space = code == ' ' || (code >= '\t' && code <= '\r');
  if (rules_.clean_text && is_control(code)) return;
  if (space) return letters_.push_back({' ', Role::space, source});
  if (rules_.lowercase && code >= 'A' && code <= 'Z') code |= 0x20;
  letters_.push_back({code, is_punctuation(code) ? Role::alone : Role::part, source});
}

// The order of the steps is BERT's: clean, set Chinese apart, strip accents, lower case, then split.
void BertWords::add_wide(int32_t code, Span source) {
  if (rules_.clean_text && (code == 0xFFFD || is_control(code))) return;
  if (u_isUWhiteSpace(code)) return letters_.push_back({' ', Role::space, source});
  const Role role = rules_.split_chinese && is_chinese(code) ? Role::alone : Role::part;
  icu::UnicodeString parts;
  if (!rules_.strip_accents || !decomposer().getDecomposition(code, parts)) parts = icu::UnicodeString(code);
  for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
    const UChar32 part = parts.char32At(i);
    if (rules_.strip_accents && u_charType(part) == U_NON_SPACING_MARK) {
      if (u_getCombiningClass(part) == 0) letters_.push_back({0, Role::barrier, source});
      continue;
    }
    has_marks_ = has_marks_ || u_getCombiningClass(part) != 0;
    add_cased(part, role, source);
  }
}

void BertWords::add_cased(int32_t code, Role role, Span source) {
  constexpr int32_t kDottedCapitalI = 0x130;  // the only letter whose small form is two
  const int32_t cased = !rules_.lowercase ? code : code == kDottedCapitalI ? 'i' : u_tolower(code);
  letters_.push_back({cased, is_punctuation(cased) ? Role::alone : role, source});
  if (rules_.lowercase && code == kDottedCapitalI) letters_.push_back({0x307, role, source});
}

// Canonical order of the marks that are left, as decomposition demands.
void BertWords::order_marks() {
  const auto rank = [](const Letter& letter) { return u_getCombiningClass(letter.code); };
  for (auto begin = letters_.begin(); begin != letters_.end();) {
    const auto end = std::find_if(begin, letters_.end(), [&](const Letter& letter) { return rank(letter) == 0; });
    std::stable_sort(begin, end, [&](const Letter& a, const Letter& b) { return rank(a) < rank(b); });
    begin = end == letters_.end() ? end : end + 1;
  }
}

// Normalises the next part of the text, up to a character that no mark before it can move behind.
bool BertWords::refill() {
  letters_.clear();
  next_letter_ = 0;
  has_marks_ = false;
  while (at_ < text_.size()) {
    size_t next = at_;
    const UChar32 code = text::next_letter(text_, next);
    if (letters_.size() >= kChunkLetters && u_getCombiningClass(code) == 0) break;
    if (code < 0x80) {
      add_ascii(code, {at_, next});
    } else {
      add_wide(code, {at_, next});
    }
    at_ = next;
  }
  if (has_marks_ && rules_.strip_accents) order_marks();
  return !letters_.empty();
}

void BertWords::push(const Letter& letter) {
  if (num_letters_ == 0) source_.begin = letter.source.begin;
  source_.end = letter.source.end;
  if (++num_letters_ > max_letters_) return;
  if (letter.code < 0x80) {
    word_ += static_cast<char>(letter.code);
  } else {
    append_letter(word_, letter.code);
  }
  sources_.resize(word_.size(), letter.source);
}

bool BertWords::next() {
  word_.clear();
  sources_.clear();
  num_letters_ = 0;
  while (next_letter_ < letters_.size() || refill()) {
    const Letter& letter = letters_[next_letter_];
    if (letter.role == Role::barrier) {
      ++next_letter_;
      continue;
    }
    if (letter.role != Role::part && num_letters_ > 0) return true;
    ++next_letter_;
    if (letter.role == Role::space) continue;
    push(letter);
    if (letter.role == Role::alone) return true;
  }
  return num_letters_ > 0;
}

}  // namespace ramify::text
