#include "text/words.h"

#include <gtest/gtest.h>

#include <random>

#include "text/utf8.h"

namespace ramify::text {
namespace {

using Parts = std::vector<std::string>;

Parts sources(std::string_view text) {
  Words split;
  split.split(text);
  Parts parts;
  for (size_t i = 0; i < split.size(); ++i) parts.emplace_back(split.source(i).of(text));
  return parts;
}

TEST(Words, PunctuationAndContractionsAreWords) {
  EXPECT_EQ(words("Don't pay $3.50, U.K.!"), (Parts{"do", "n't", "pay", "$", "3.50", ",", "u.k.", "!"}));
  EXPECT_EQ(words("It's they'll I'm we've you're he'd CAN'T"),
            (Parts{"it", "'s", "they", "'ll", "i", "'m", "we", "'ve", "you", "'re", "he", "'d", "ca", "n't"}));
  EXPECT_EQ(words("o'clock dogs' 'quoted' rock'n'roll n't"),
            (Parts{"o'clock", "dogs", "'", "'", "quoted", "'", "rock'n'roll", "n't"}));
  EXPECT_EQ(words("(\"Yes\") [1] a/b x@yes.no #tag 50% _a_"),
            (Parts{"(", "\"",  "yes", "\"", ")", "[",   "1",  "]", "a", "/", "b", "x",
                   "@", "yes", ".",   "no", "#", "tag", "50", "%", "_", "a", "_"}));
  EXPECT_EQ(words("\"Alien\"'s the U.S.'s"), (Parts{"\"", "alien", "\"", "'s", "the", "u.s.", "'s"}));
}

TEST(Words, NumbersAndAbbreviationsKeepTheirDots) {
  EXPECT_EQ(words("1,000 3.14. 1990s 10th v2.0 1. 2,"),
            (Parts{"1,000", "3.14", ".", "1990s", "10th", "v2.0", "1", ".", "2", ","}));
  EXPECT_EQ(words("e.g. the U.S.A J.R.R. Tolkien"), (Parts{"e.g.", "the", "u.s.a", "j.r.r.", "tolkien"}));
  EXPECT_EQ(words("I. A.bc end.Start a."), (Parts{"i", ".", "a", ".", "bc", "end", ".", "start", "a", "."}));
}

TEST(Words, RunsOfDotsAndDashesAreOneWord) {
  EXPECT_EQ(words("well...  no.... -- a---b - twenty-five"),
            (Parts{"well", "...", "no", "...", "--", "a", "--", "b", "-", "twenty", "-", "five"}));
  EXPECT_EQ(words("!!! ??"), (Parts{"!", "!", "!", "?", "?"}));
}

TEST(Words, OtherScriptsAreLowerCasedAndComposed) {
  EXPECT_EQ(words("\xC3\x89T\xC3\x89"), (Parts{"\xC3\xA9t\xC3\xA9"}));  // E acute
  EXPECT_EQ(words("Cafe\xCC\x81"), (Parts{"caf\xC3\xA9"}));             // e, combining acute
  EXPECT_EQ(words("\xD0\x9C\xD0\x9E\xD0\xA1\xD0\x9A\xD0\x92\xD0\x90"),
            (Parts{"\xD0\xBC\xD0\xBE\xD1\x81\xD0\xBA\xD0\xB2\xD0\xB0"}));  // Moscow in Cyrillic
  EXPECT_EQ(words("don\xE2\x80\x99t \xE2\x80\x9Chi\xE2\x80\x9D"), (Parts{"do", "n't", "\"", "hi", "\""}));
  EXPECT_EQ(sources("DON\xE2\x80\x99T"), (Parts{"DO", "N\xE2\x80\x99T"}));
  EXPECT_EQ(words("\xF0\x9F\x98\x80\xF0\x9F\x98\x80"), (Parts{"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"}));
  EXPECT_EQ(words("\xE2\x9D\xA4\xEF\xB8\x8F"), (Parts{"\xE2\x9D\xA4"}));    // heart, how to draw it
  EXPECT_EQ(words("co\xC2\xADoperate\xEF\xBB\xBF"), (Parts{"cooperate"}));  // soft hyphen, byte order mark
}

TEST(Words, ScriptsWithoutSpacesAreSplitByDictionary) {
  EXPECT_EQ(words("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x81\xA7\xE3\x81\x99\xE3\x80\x82"),  // nihongo desu.
            (Parts{"\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E", "\xE3\x81\xA7\xE3\x81\x99", "\xE3\x80\x82"}));
  EXPECT_EQ(
      words("\xE0\xB8\xA0\xE0\xB8\xB2\xE0\xB8\xA9\xE0\xB8\xB2\xE0\xB9\x84\xE0\xB8\x97\xE0\xB8\xA2"),  // phasa thai
      (Parts{"\xE0\xB8\xA0\xE0\xB8\xB2\xE0\xB8\xA9\xE0\xB8\xB2", "\xE0\xB9\x84\xE0\xB8\x97\xE0\xB8\xA2"}));
}

TEST(Words, NothingVisibleGivesNoWords) {
  EXPECT_EQ(words(""), Parts{});
  EXPECT_EQ(words(std::string(" \t\n\0\x7F\xC2\xA0\xE2\x80\x8B\xEF\xBB\xBF", 14)), Parts{});
}

TEST(Words, ReuseForgetsTheWordsBefore) {
  Words split;
  split.split("a long first text");
  split.split("b");
  ASSERT_EQ(split.size(), 1u);
  EXPECT_EQ(split[0], "b");
  EXPECT_EQ(split.source(0), (Span{0, 1}));
}

TEST(Words, SourcesAscendAndHoldEveryVisibleCharacter) {
  constexpr std::string_view kPieces[] = {"a",
                                          "N",
                                          "'",
                                          "t",
                                          "s",
                                          ".",
                                          "-",
                                          " ",
                                          "3",
                                          ",",
                                          "\xE2\x80\x99",
                                          "\xC3\x89",
                                          "\xCC\x81",
                                          "\xC2\xAD",
                                          "\xE6\xBC\xA2",
                                          "\xE0\xB8\x81",
                                          "\xF0\x9F\x98\x80"};
  std::mt19937 random(9);
  Words split;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t length = random() % 14; length > 0; --length) text += kPieces[random() % std::size(kPieces)];
    split.split(text);
    size_t end = 0;
    for (size_t w = 0; w < split.size(); ++w) {
      const Span source = split.source(w);
      const std::string between = text.substr(end, source.begin - end);
      EXPECT_EQ(between.find_first_not_of(" \xC2\xAD"), between.npos) << text;
      ASSERT_LT(source.begin, source.end) << text;
      EXPECT_FALSE(split[w].empty());
      EXPECT_TRUE(is_valid_utf8(split[w]) && is_valid_utf8(source.of(text))) << text;
      EXPECT_EQ(split[w].find_first_of("N"), std::string_view::npos);
      end = source.end;
    }
  }
}

// Each of these would take hours if a word were looked at more than a few times.
TEST(Words, LongTextsTakeLinearTime) {
  constexpr size_t kRepeats = 300'000;
  for (const std::string piece : {"a", "a.", "(", ".", ". ", "-", "'", "a'", "'s", "1,", "\xCC\x81", "\xCC\x81\xCC\xA3",
                                  "\xE6\xBC\xA2", "\xC2\xAD", "\xE2\x80\x8D"}) {
    std::string text = "a";
    for (size_t i = 0; i < kRepeats; ++i) text += piece;
    words(text);
  }
}

}  // namespace
}  // namespace ramify::text
