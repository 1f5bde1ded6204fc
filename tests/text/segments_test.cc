#include "text/segments.h"

#include <gtest/gtest.h>
#include <unicode/brkiter.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utext.h>

#include <map>
#include <memory>
#include <random>
#include <string>

#include "text/letters.h"

namespace ramify::text {
namespace {

using Parts = std::vector<std::string>;

Parts parts(std::string_view text, const std::vector<Span>& spans) {
  Parts result;
  for (const Span span : spans) result.emplace_back(span.of(text));
  return result;
}
Parts sentence_parts(std::string_view text) {
  return parts(text, sentences(text));
}
Parts paragraph_parts(std::string_view text) {
  return parts(text, paragraphs(text));
}

std::vector<size_t> icu_breaks(const std::string& text) {
  UErrorCode status = U_ZERO_ERROR;
  static const std::unique_ptr<icu::BreakIterator> iterator(
      icu::BreakIterator::createSentenceInstance(icu::Locale::getRoot(), status));
  const icu::LocalUTextPointer view(utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status));
  iterator->setText(view.getAlias(), status);
  EXPECT_TRUE(U_SUCCESS(status));
  std::vector<size_t> breaks;
  for (int32_t at = iterator->next(); at != icu::BreakIterator::DONE; at = iterator->next()) {
    breaks.push_back(static_cast<size_t>(at));
  }
  return breaks;
}

std::string code_points(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    char code[16];
    std::snprintf(code, sizeof(code), "U+%04X ", static_cast<unsigned>(next_letter(text, at)));
    result += code;
  }
  return result;
}

void expect_icu_breaks(const std::string& text) {
  std::vector<size_t> breaks;
  sentence_breaks(text, breaks);
  EXPECT_EQ(breaks, icu_breaks(text)) << code_points(text);
}

TEST(Sentences, EndAtTerminatorsAndLines) {
  EXPECT_EQ(sentence_parts("It rains. Really? Yes! Ok"), (Parts{"It rains.", "Really?", "Yes!", "Ok"}));
  EXPECT_EQ(sentence_parts("He said (\"No.\")  She left."), (Parts{"He said (\"No.\")", "She left."}));
  EXPECT_EQ(sentence_parts("It costs 3.50, i.e. too much."), (Parts{"It costs 3.50, i.e. too much."}));
  EXPECT_EQ(sentence_parts("one line\nanother\r\n\n third"), (Parts{"one line", "another", "third"}));
  EXPECT_EQ(sentence_parts("\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82\xE5\x86\x8D\xE8\xA7\x81\xE3\x80\x82"),
            (Parts{"\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82", "\xE5\x86\x8D\xE8\xA7\x81\xE3\x80\x82"}));
  EXPECT_EQ(sentence_parts(""), Parts{});
  EXPECT_EQ(sentence_parts(" \n\t\xC2\xA0 "), Parts{});
}

// Some characters of every class that the rules know.
std::vector<UChar32> letters_of_all_classes() {
  std::vector<UChar32> letters;
  for (int cls = 0; cls < U_SB_COUNT; ++cls) {
    UErrorCode status = U_ZERO_ERROR;
    icu::UnicodeSet set;
    set.applyIntPropertyValue(UCHAR_SENTENCE_BREAK, cls, status);
    EXPECT_TRUE(U_SUCCESS(status));
    set.remove(0xD800, 0xDFFF);
    for (const int share : {0, 1, 2, 3, 5, 8}) letters.push_back(set.charAt(set.size() * share / 9));
    if (set.size() > 0) letters.push_back(set.charAt(set.size() - 1));
  }
  std::erase_if(letters, [](UChar32 letter) { return letter < 0; });
  return letters;
}

TEST(Sentences, BreaksAreThoseOfIcuOnTextsOfEveryClass) {
  const std::vector<UChar32> letters = letters_of_all_classes();
  ASSERT_GT(letters.size(), 70u);
  std::mt19937 random(6);
  for (int i = 0; i < 30'000; ++i) {
    std::string text;
    for (size_t length = random() % 14; length > 0; --length) append_letter(text, letters[random() % letters.size()]);
    expect_icu_breaks(text);
    if (HasFailure()) return;
  }
}

TEST(Sentences, BreaksAreThoseOfIcuOnTextsLikeEnglish) {
  constexpr std::string_view kPieces[] = {"a",
                                          "B",
                                          "word",
                                          "Word",
                                          ".",
                                          ".",
                                          "!",
                                          "?",
                                          "...",
                                          " ",
                                          " ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "\r",
                                          ",",
                                          "\"",
                                          "'",
                                          "(",
                                          ")",
                                          "\xE2\x80\x9D",
                                          "\xE2\x80\x99",
                                          "\xE2\x80\xA6",
                                          "3",
                                          "-",
                                          ":",
                                          "\xC3\xA9",
                                          "\xCC\x81",
                                          "\xC2\xAD",
                                          "\xC2\x85"};
  std::mt19937 random(7);
  for (int i = 0; i < 30'000; ++i) {
    std::string text;
    for (size_t length = random() % 20; length > 0; --length) text += kPieces[random() % std::size(kPieces)];
    expect_icu_breaks(text);
    if (HasFailure()) return;
  }
}

TEST(Sentences, BreaksOfAsciiAreThoseOfIcuForEveryFourCharacters) {
  constexpr std::string_view kLetters = ".!a A3,)\"\n\r";
  for (const char a : kLetters) {
    for (const char b : kLetters) {
      for (const char c : kLetters) {
        for (const char d : kLetters) expect_icu_breaks({'x', a, b, c, d, 'y'});
      }
    }
  }
}

TEST(Segments, SpansAscendAreTrimmedAndHoldEverythingElse) {
  constexpr std::string_view kPieces[] = {"a", ". B", "\n",       "\n\n",         "\r\n \r\n",
                                          " ", "\t",  "\xC2\xA0", "\xE3\x80\x80", "!"};
  const auto is_visible = [](char c) { return c == 'a' || c == 'B' || c == '.' || c == '!'; };
  std::mt19937 random(8);
  for (int i = 0; i < 5'000; ++i) {
    std::string text;
    for (size_t length = random() % 16; length > 0; --length) text += kPieces[random() % std::size(kPieces)];
    for (const auto& spans : {sentences(text), paragraphs(text)}) {
      size_t end = 0;
      std::string held;
      for (const Span span : spans) {
        ASSERT_LE(end, span.begin);
        ASSERT_LT(span.begin, span.end);
        end = span.end;
        held += span.of(text);
        EXPECT_TRUE(is_visible(text[span.begin]) && is_visible(text[span.end - 1])) << code_points(text);
      }
      EXPECT_EQ(std::count_if(held.begin(), held.end(), is_visible),
                std::count_if(text.begin(), text.end(), is_visible));
    }
  }
}

TEST(Paragraphs, AreWhatBlankLinesSeparate) {
  EXPECT_EQ(paragraph_parts("one\ntwo\n\nthree\n \t\n\n four "), (Parts{"one\ntwo", "three", "four"}));
  EXPECT_EQ(paragraph_parts("one\r\n\r\ntwo\rthree\r\rfour"), (Parts{"one", "two\rthree", "four"}));
  EXPECT_EQ(paragraph_parts("one\n\xC2\xA0\ntwo"), (Parts{"one", "two"}));
  EXPECT_EQ(paragraph_parts("\n\n  one  \n\n"), (Parts{"one"}));
  EXPECT_EQ(paragraph_parts("one"), (Parts{"one"}));
  EXPECT_EQ(paragraph_parts(""), Parts{});
  EXPECT_EQ(paragraph_parts(" \n\n \n"), Parts{});
}

// Each of these would take hours if a rule looked ahead or back without a bound.
TEST(Segments, LongTextsTakeLinearTime) {
  constexpr size_t kRepeats = 500'000;
  for (const std::string piece : {".", ". ", ". 1", ".)", "\n", "\r", " \n", "\xCC\x81", ".\xCC\x81", "?\"", " "}) {
    std::string text;
    for (size_t i = 0; i < kRepeats; ++i) text += piece;
    sentences("A." + text);
    paragraphs("A\n" + text);
  }
}

}  // namespace
}  // namespace ramify::text
