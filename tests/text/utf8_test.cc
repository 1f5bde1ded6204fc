#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace ramify::text {
namespace {

const std::string kMark = "\xEF\xBF\xBD";

// What Python's bytes.decode("utf-8", "replace") gives.
TEST(Utf8, EachBrokenPartBecomesOneMark) {
  EXPECT_EQ(valid_utf8("\xFF"), kMark);
  EXPECT_EQ(valid_utf8("a\x80"
                       "b"),
            "a" + kMark + "b");
  EXPECT_EQ(valid_utf8("\xC3"), kMark);
  EXPECT_EQ(valid_utf8("\xC3"
                       "a"),
            kMark + "a");
  EXPECT_EQ(valid_utf8("\xC0\xAF"), kMark + kMark);  // "/" in two bytes
  EXPECT_EQ(valid_utf8("\xE2\x82"
                       "a"),
            kMark + "a");                                                    // cut short
  EXPECT_EQ(valid_utf8("\xE0\x80\x80"), kMark + kMark + kMark);              // too long a form
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), kMark + kMark + kMark);              // a surrogate
  EXPECT_EQ(valid_utf8("\xF0\x9F\x98"), kMark);                              // an emoji cut short
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), kMark + kMark + kMark + kMark);  // beyond U+10FFFF
  EXPECT_EQ(valid_utf8("\xF0\x9F\x98\x80\xFE"), "\xF0\x9F\x98\x80" + kMark);
}

TEST(Utf8, ValidTextStays) {
  for (const std::string text : {"", "plain ASCII, longer than eight bytes", "\xC3\xA9t\xC3\xA9",
                                 "\xE6\xBC\xA2\xE5\xAD\x97", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF", "\xEF\xBF\xBD"}) {
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(valid_utf8(text), text);
  }
  EXPECT_TRUE(is_valid_utf8(std::string_view("a\0b", 3)));
}

TEST(Utf8, RandomBytesBecomeValidAndOnlyBrokenOnesChange) {
  std::mt19937 random(5);
  constexpr std::string_view kBytes = "ab\x80\xBF\xC3\xA9\xE2\x82\xAC\xED\xA0\xF0\x9F\x98\xF4\xFF";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t length = random() % 24; length > 0; --length) text += kBytes[random() % kBytes.size()];
    const std::string valid = valid_utf8(text);
    EXPECT_TRUE(is_valid_utf8(valid));
    EXPECT_EQ(is_valid_utf8(text), valid == text);
  }
}

TEST(RepairedUtf8, TellsWhereItsBytesComeFrom) {
  const std::string broken =
      "a\xFF\xC3\xA9\xE6\xBC"
      "b";
  const RepairedUtf8 repaired(broken);
  EXPECT_EQ(repaired.text(), "a" + kMark + "\xC3\xA9" + kMark + "b");
  const auto source = [&](size_t begin, size_t end) { return repaired.source({begin, end}).of(broken); };
  EXPECT_EQ(source(0, 1), "a");
  EXPECT_EQ(source(1, 4), "\xFF");
  EXPECT_EQ(source(2, 3), "\xFF");  // a part of the mark
  EXPECT_EQ(source(1, 2), "\xFF");
  EXPECT_EQ(source(4, 6), "\xC3\xA9");
  EXPECT_EQ(source(6, 9), "\xE6\xBC");
  EXPECT_EQ(source(8, 10),
            "\xE6\xBC"
            "b");
  EXPECT_EQ(source(0, 10), broken);
  EXPECT_EQ(source(1, 1), "");
  EXPECT_EQ(source(9, 9), "");
}

}  // namespace
}  // namespace ramify::text
