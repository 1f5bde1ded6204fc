// Unicode's rules for sentence boundaries (UAX 29, SB3 to SB998), applied only where they can say "break": after a
// terminator or the end of a line. Classes of characters come from ICU. ICU's own BreakIterator gives the same breaks
// and looks at every character with a state machine, which takes six times as long.
#include <unicode/uchar.h>

#include <array>

#include "text/letters.h"
#include "text/segments.h"

namespace ramify::text {
namespace {

USentenceBreak class_of(UChar32 letter) {
  return static_cast<USentenceBreak>(u_getIntPropertyValue(letter, UCHAR_SENTENCE_BREAK));
}

struct AsciiClasses {
  std::array<USentenceBreak, 128> class_of_byte;
  std::array<bool, 256> matters;  // may end a sentence, or is not ASCII

  AsciiClasses() {
    matters.fill(true);
    for (UChar32 letter = 0; letter < 128; ++letter) {
      const USentenceBreak cls = class_of(letter);
      class_of_byte[letter] = cls;
      matters[letter] = cls == U_SB_STERM || cls == U_SB_ATERM || cls == U_SB_SEP || cls == U_SB_CR || cls == U_SB_LF;
    }
  }
};
const AsciiClasses kAscii;

bool ends_paragraph(USentenceBreak cls) {
  return cls == U_SB_SEP || cls == U_SB_CR || cls == U_SB_LF;
}
bool terminates(USentenceBreak cls) {
  return cls == U_SB_STERM || cls == U_SB_ATERM;
}
bool extends(USentenceBreak cls) {
  return cls == U_SB_EXTEND || cls == U_SB_FORMAT;
}

// A place in the text, the class of the character there, and the place after it.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at) : text_(text), at_(at), next_(at) { look(); }

  bool done() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  USentenceBreak cls() const { return class_; }

  // To the next character.
  void step() {
    at_ = next_;
    look();
  }
  // To the next character that counts: marks belong to what they follow (SB5).
  void step_whole() {
    step();
    while (!done() && extends(class_)) step();
  }

 private:
  void look() {
    class_ = U_SB_OTHER;
    if (done()) return;
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte < 0x80) {
      next_ = at_ + 1;
      class_ = kAscii.class_of_byte[byte];
    } else {
      class_ = class_of(next_letter(text_, next_));
    }
  }

  std::string_view text_;
  size_t at_;
  size_t next_;
  USentenceBreak class_ = U_SB_OTHER;
};

// The class of the last character before `at` that is no mark.
USentenceBreak class_before(std::string_view text, size_t at) {
  USentenceBreak cls = U_SB_OTHER;
  while (at > 0) {
    cls = class_of(previous_letter(text, at));
    if (!extends(cls)) break;
  }
  return cls;
}

// SB8: after a full stop, a small letter comes before any other letter, terminator or end of line.
bool goes_on_in_lower_case(Cursor cursor) {
  for (; !cursor.done(); cursor.step_whole()) {
    const USentenceBreak cls = cursor.cls();
    if (cls == U_SB_LOWER) return true;
    if (cls == U_SB_OLETTER || cls == U_SB_UPPER || terminates(cls) || ends_paragraph(cls)) return false;
  }
  return false;
}

// The cursor is at a terminator. Moves it behind what belongs to the terminator; true: the sentence ends there.
bool passes_terminator(std::string_view text, Cursor& cursor) {
  const bool full_stop = cursor.cls() == U_SB_ATERM;
  const size_t terminator = cursor.at();
  cursor.step_whole();
  if (full_stop && !cursor.done()) {
    if (cursor.cls() == U_SB_NUMERIC) return false;  // SB6
    if (cursor.cls() == U_SB_UPPER) {                // SB7
      const USentenceBreak before = class_before(text, terminator);
      if (before == U_SB_UPPER || before == U_SB_LOWER) return false;
    }
  }
  while (!cursor.done() && cursor.cls() == U_SB_CLOSE) cursor.step_whole();  // SB9
  while (!cursor.done() && cursor.cls() == U_SB_SP) cursor.step_whole();     // SB10
  if (cursor.done()) return false;
  const USentenceBreak next = cursor.cls();
  if (ends_paragraph(next)) return false;                        // the end of the line is the end of the sentence
  if (next == U_SB_SCONTINUE || terminates(next)) return false;  // SB8a
  return !(full_stop && goes_on_in_lower_case(cursor));          // SB8, SB11
}

// The cursor is at the end of a line; moves it behind (SB3, SB4).
void pass_line_end(Cursor& cursor) {
  const bool carriage_return = cursor.cls() == U_SB_CR;
  cursor.step();
  if (carriage_return && !cursor.done() && cursor.cls() == U_SB_LF) cursor.step();
}

}  // namespace

void sentence_breaks(std::string_view text, std::vector<size_t>& breaks) {
  breaks.clear();
  const auto matters = [&](size_t at) { return kAscii.matters[static_cast<unsigned char>(text[at])]; };
  size_t at = 0;
  while (true) {
    while (at < text.size() && !matters(at)) ++at;
    if (at == text.size()) break;
    Cursor cursor(text, at);
    bool ends = false;
    if (ends_paragraph(cursor.cls())) {
      pass_line_end(cursor);
      ends = true;
    } else if (terminates(cursor.cls())) {
      ends = passes_terminator(text, cursor);
    } else {
      cursor.step();
    }
    at = cursor.at();
    if (ends && at < text.size()) breaks.push_back(at);
  }
  if (!text.empty()) breaks.push_back(text.size());
}

}  // namespace ramify::text
