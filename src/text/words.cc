// Words are told apart in one pass: ASCII by a table, other characters by ICU's properties, and by the dictionaries of
// ICU where a script writes no spaces.
#include "text/words.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "text/letters.h"
#include "text/word_kinds.h"

namespace ramify::text {
namespace {

// ICU's word boundaries inside `run`, as spans of the text.
template <class Visit>
void visit_dictionary_words(std::string_view text, Span run, Visit visit) {
  UErrorCode status = U_ZERO_ERROR;
  thread_local const std::unique_ptr<icu::BreakIterator> iterator(
      icu::BreakIterator::createWordInstance(icu::Locale::getRoot(), status));
  const icu::LocalUTextPointer view(
      utext_openUTF8(nullptr, text.data() + run.begin, static_cast<int64_t>(run.end - run.begin), &status));
  if (iterator) iterator->setText(view.getAlias(), status);
  if (!iterator || U_FAILURE(status)) throw std::runtime_error("words: ICU has no data for word boundaries");
  size_t begin = run.begin;
  for (int32_t at = iterator->next(); at != icu::BreakIterator::DONE; at = iterator->next()) {
    const size_t end = run.begin + static_cast<size_t>(at);
    visit(Span{begin, end});
    begin = end;
  }
}

// Composes letters and marks from `begin` on. Long runs of marks would take quadratic time to order; no word has them.
void compose(std::string& letters, size_t begin) {
  constexpr size_t kLongestWord = 256;
  if (letters.size() - begin > kLongestWord) return;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* composer = icu::Normalizer2::getNFCInstance(status);
  if (U_FAILURE(status)) throw std::runtime_error("words: ICU has no data for normalisation");
  std::string composed;
  icu::StringByteSink<std::string> sink(&composed);
  composer->normalizeUTF8(0, letters.substr(begin), sink, nullptr, status);
  letters.replace(begin, letters.npos, composed);
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

bool is_ascii_letter(char c) {
  return lower(c) >= 'a' && lower(c) <= 'z';
}

bool is_part(WordKind kind) {
  return kind == WordKind::letter || kind == WordKind::digit;
}

// "'s", "'ll" and their like, without the apostrophe.
bool is_clitic(std::string_view s) {
  if (s.empty() || s.size() > 2) return false;
  const char first = lower(s[0]);
  if (s.size() == 1) return first == 's' || first == 'm' || first == 'd';
  const char second = lower(s[1]);
  return (first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e');
}

// Letters and digits in a row, with what may stand between them.
struct Run {
  Span source;
  size_t apostrophe = std::string_view::npos;  // the last one
  size_t after_apostrophe = 0;
  bool ascii = true;
  bool needs_dictionary = false;
};

}  // namespace

class WordSplitter {
 public:
  WordSplitter(std::string_view text, Words& words) : text_(text), words_(words), letters_(words.letters_) {}

  void split() {
    letters_.clear();
    words_.ends_.clear();
    words_.sources_.clear();
    letters_.reserve(text_.size());
    while (at_ < text_.size()) {
      size_t next = at_;
      switch (word_kind(look(next))) {
        case WordKind::space:
        case WordKind::ignored:
          break;
        case WordKind::letter:
        case WordKind::digit:
          next = word();
          break;
        case WordKind::apostrophe:
        case WordKind::symbol:
          next = symbol(next);
          break;
      }
      at_ = next;
    }
  }

 private:
  // The character at `at`, which moves behind it.
  UChar32 look(size_t& at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte >= 0x80) return next_letter(text_, at);
    ++at;
    return byte;
  }

  WordKind kind_at(size_t at) const { return at < text_.size() ? word_kind(look(at)) : WordKind::space; }

  // True if `letter` stands inside a word between characters of these kinds: don't, 1,000, 3.50.
  static bool joins(UChar32 letter, WordKind kind, WordKind before, WordKind after) {
    if (kind == WordKind::apostrophe) return is_part(before) && after == WordKind::letter;
    if (letter == '.' || letter == ',') return before == WordKind::digit && after == WordKind::digit;
    return false;
  }

  // The place after the ASCII letters and digits that begin at `at`.
  size_t skip_plain(size_t at) const {
    while (at < text_.size() && static_cast<unsigned char>(text_[at]) < 0x80 && is_part(word_kind(text_[at]))) ++at;
    return at;
  }

  Run run() const {
    Run run;
    WordKind before = WordKind::space;
    size_t at = at_;
    while (at < text_.size()) {
      const size_t plain_end = skip_plain(at);
      if (plain_end > at) before = word_kind(text_[plain_end - 1]);
      if ((at = plain_end) == text_.size()) break;
      size_t next = at;
      const UChar32 letter = look(next);
      const WordKind kind = word_kind(letter);
      if (!is_part(kind) && kind != WordKind::ignored) {
        if (!joins(letter, kind, before, kind_at(next))) break;
        if (kind == WordKind::apostrophe) {
          run.apostrophe = at;
          run.after_apostrophe = next;
        }
      }
      if (kind != WordKind::ignored) before = kind;
      if (letter >= 0x80) {
        run.ascii = false;
        run.needs_dictionary = run.needs_dictionary || writes_no_spaces(letter);
      }
      at = next;
    }
    run.source = {at_, at};
    return run;
  }

  // Single letters with full stops: "U.S.", "e.g.", "J.R.R". The place after them; at_ if there are none.
  size_t abbreviation_end() const {
    const auto is_single = [&](size_t at) { return at < text_.size() && is_ascii_letter(text_[at]); };
    size_t at = at_;
    while (is_single(at) && at + 1 < text_.size() && text_[at + 1] == '.') at += 2;
    if (at > at_ && is_single(at) && !is_part(kind_at(at + 1))) ++at;
    return at > at_ + 2 && !is_part(kind_at(at)) ? at : at_;
  }

  // Where the second word of "it's" and "don't" begins; the end if the run is one word.
  size_t clitic_begin(const Run& run) const {
    if (run.apostrophe == std::string_view::npos) return run.source.end;
    const std::string_view after = Span{run.after_apostrophe, run.source.end}.of(text_);
    if (is_clitic(after)) return run.apostrophe;
    const size_t n = run.apostrophe - 1;
    const bool negates = after.size() == 1 && lower(after[0]) == 't' && lower(text_[n]) == 'n';
    return negates ? n : run.source.end;
  }

  // Appends the word or words that begin here, and returns where they end.
  size_t word() {
    const size_t end = abbreviation_end();
    if (end > at_) {
      append({at_, end}, /*ascii=*/true);
      return end;
    }
    const Run found = run();
    if (found.needs_dictionary) {
      visit_dictionary_words(text_, found.source, [&](Span part) { append(part, /*ascii=*/false); });
    } else {
      const size_t middle = clitic_begin(found);
      append({found.source.begin, middle}, found.ascii);
      append({middle, found.source.end}, found.ascii);
    }
    return found.source.end;
  }

  // A word that is no letter: one character, "--" or "..." of any length, or what follows a word: the 's of "U.S.'s".
  size_t symbol(size_t next) {
    const char c = text_[at_];
    if (c == '.' || c == '-') {
      const size_t end = std::min(text_.find_first_not_of(c, at_), text_.size());
      if (end > next) {
        letters_ += c == '.' ? "..." : "--";
        finish({at_, end});
        return end;
      }
    } else if (kind_at(at_) == WordKind::apostrophe && at_ > 0 && !is_space_before()) {
      size_t end = next;
      while (end < text_.size() && is_ascii_letter(text_[end]) && end - next < 3) ++end;
      if (is_clitic(text_.substr(next, end - next)) && !is_part(kind_at(end))) next = end;
    }
    append({at_, next}, /*ascii=*/static_cast<unsigned char>(c) < 0x80);
    return next;
  }

  bool is_space_before() const {
    size_t at = at_;
    return word_kind(previous_letter(text_, at)) == WordKind::space;
  }

  // Appends one word, unless nothing of it is visible.
  void append(Span source, bool ascii) {
    const size_t first = letters_.size();
    if (ascii) {
      letters_.append(text_, source.begin, source.end - source.begin);
      for (size_t i = first; i < letters_.size(); ++i) letters_[i] = lower(letters_[i]);
    } else {
      append_wide(source);
    }
    if (letters_.size() > first) finish(source);
  }

  void append_wide(Span source) {
    const size_t first = letters_.size();
    bool has_marks = false;
    for (size_t at = source.begin; at < source.end;) {
      const UChar32 letter = look(at);
      if (word_kind(letter) == WordKind::ignored) continue;
      append_letter(letters_, plain_letter(letter));
      has_marks = has_marks || (U_GET_GC_MASK(letter) & U_GC_M_MASK);
    }
    if (has_marks) compose(letters_, first);
  }

  void finish(Span source) {
    words_.ends_.push_back(letters_.size());
    words_.sources_.push_back(source);
  }

  std::string_view text_;
  Words& words_;
  std::string& letters_;
  size_t at_ = 0;
};

void Words::split(std::string_view text) {
  WordSplitter(text, *this).split();
}

std::vector<std::string> words(std::string_view text) {
  Words all;
  all.split(text);
  std::vector<std::string> result;
  for (size_t i = 0; i < all.size(); ++i) result.emplace_back(all[i]);
  return result;
}

}  // namespace ramify::text
