#include "text/byte_level.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "text/utf8.h"

namespace ramify::text {
namespace {

using Words = std::vector<std::string>;

Words byte_level_words(std::string_view text) {
  Words all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = byte_level_word_end(text, begin);
    all.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return all;
}

TEST(ByteAlphabet, EveryByteHasAPrintableLetterOfItsOwn) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const std::string letters = to_byte_alphabet(bytes);
  EXPECT_TRUE(is_valid_utf8(letters));
  EXPECT_EQ(from_byte_alphabet(letters), bytes);
  for (const char c : letters) EXPECT_FALSE(static_cast<unsigned char>(c) <= ' ' || c == 0x7F);
}

TEST(ByteAlphabet, LettersAreThoseOfPublishedVocabularies) {
  EXPECT_EQ(to_byte_alphabet(" the\n"), "\xC4\xA0the\xC4\x8A");
  EXPECT_EQ(to_byte_alphabet("\xC3\xA9"), "\xC3\x83\xC2\xA9");
  EXPECT_EQ(to_byte_alphabet("\xAD"), "\xC5\x83");  // the last that does not stand for itself
  EXPECT_EQ(from_byte_alphabet("<|endoftext|>"), "<|endoftext|>");
  EXPECT_EQ(from_byte_alphabet(""), "");
}

TEST(ByteAlphabet, OtherLettersAreRefused) {
  for (const auto* token : {"a b", "\n", "\x7F", "\xC2\xAD", "\xC2\xA0", "\xC5\x84", "\xE6\xBC\xA2", "\xFF", "\xC4"}) {
    EXPECT_EQ(from_byte_alphabet(token), std::nullopt) << token;
  }
}

TEST(ByteLevelWords, SpacesGoWithTheWordBehindThem) {
  EXPECT_EQ(byte_level_words("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(byte_level_words(" a  b   c "), (Words{" a", " ", " b", "  ", " c", " "}));
  EXPECT_EQ(byte_level_words("a\n\nb \nc\n d"), (Words{"a", "\n", "\n", "b", " ", "\n", "c", "\n", " d"}));
  EXPECT_EQ(byte_level_words("   "), (Words{"   "}));
  EXPECT_EQ(byte_level_words(" \n"), (Words{" \n"}));
  EXPECT_EQ(byte_level_words("\xC2\xA0 a\xE3\x80\x80"
                             "b"),
            (Words{"\xC2\xA0", " a", "\xE3\x80\x80", "b"}));
  EXPECT_EQ(byte_level_words(""), Words{});
}

TEST(ByteLevelWords, LettersNumbersAndOthersArePartedFromEachOther) {
  EXPECT_EQ(byte_level_words("abc123!? x2 3y !4"), (Words{"abc", "123", "!?", " x", "2", " 3", "y", " !", "4"}));
  // letters of all alphabets; numbers of all kinds (a fraction); marks and what is not assigned are neither
  EXPECT_EQ(byte_level_words("a\xCE\xB1\xE6\xBC\xA2\xEA\xB0\x80"), (Words{"a\xCE\xB1\xE6\xBC\xA2\xEA\xB0\x80"}));
  EXPECT_EQ(byte_level_words("1\xC2\xBD\xD9\xA3"), (Words{"1\xC2\xBD\xD9\xA3"}));
  EXPECT_EQ(byte_level_words("e\xCC\x81"
                             "e"),
            (Words{"e", "\xCC\x81", "e"}));
  EXPECT_EQ(byte_level_words("!\xCD\xB8\xF0\x9F\x98\x80_"), (Words{"!\xCD\xB8\xF0\x9F\x98\x80_"}));
}

TEST(ByteLevelWords, EnglishEndingsAreWords) {
  EXPECT_EQ(byte_level_words("I'm you're he's we'll don't I'd I've"),
            (Words{"I", "'m", " you", "'re", " he", "'s", " we", "'ll", " don", "'t", " I", "'d", " I", "'ve"}));
  EXPECT_EQ(byte_level_words("'sa"), (Words{"'s", "a"}));
  EXPECT_EQ(byte_level_words("a'S 's ''s 'r"), (Words{"a", "'", "S", " '", "s", " ''", "s", " '", "r"}));
  EXPECT_EQ(byte_level_words("'"), (Words{"'"}));
}

RC_GTEST_PROP(ByteLevelWords, CoverTheTextAndEndBetweenLetters, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "Z", "'", "s", "ll", " ", "  ", "\n", "\t", "7", "!", "\xC2\xA0", "\xC3\xA9",
                                    "\xCC\x81", "\xE2\x80\xA8", "\xE6\xBC\xA2", "\xF0\x9F\x98\x80", "\xC2\xBD"));
  std::string text;
  for (const auto& piece : pieces) text += piece;
  std::string joined;
  for (const auto& word : byte_level_words(text)) {
    RC_ASSERT(!word.empty());
    RC_ASSERT(is_valid_utf8(word));
    joined += word;
  }
  RC_ASSERT(joined == text);
}

TEST(ByteLevelWords, LongRunsTakeLinearTime) {
  for (const std::string piece : {"a", " ", "\n", "!", "'", "1", "' ", " \xE2\x80\xA8"}) {
    std::string text;
    for (int i = 0; i < 500'000; ++i) text += piece;
    EXPECT_FALSE(byte_level_words(text + "x").empty());
  }
}

}  // namespace
}  // namespace ramify::text
