#include "text/word_vectors.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"

namespace ramify::text {
namespace {

using testing::error_message;
using testing::TemporaryFolder;
using Tokens = std::vector<std::string>;
using Values = std::vector<float>;

TEST(WordVectors, LinesAreWordsAndNumbers) {
  const TemporaryFolder folder;
  const std::string text = "the 1 -2.5\n, 1e-3 0.25 \n. . . 3 4\nthe 9 9\n";
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  for (const auto& bytes : {text, packed}) {
    const WordVectors vectors = read_word_vectors(folder.write("a.txt", bytes));
    EXPECT_EQ(vectors.width, 2);
    EXPECT_EQ(vectors.words, (Tokens{"the", ",", ". . ."}));
    EXPECT_EQ(vectors.values, (Values{1, -2.5, 1e-3f, 0.25, 3, 4}));
    EXPECT_EQ(vectors.vector(2)[1], 4);
  }
}

TEST(WordVectors, FirstLineMayBeCountAndWidth) {
  const TemporaryFolder folder;
  const WordVectors vectors = read_word_vectors(folder.write("a.vec", "2 3\na 1 2 3\n5 4 5 6\n"));
  EXPECT_EQ(vectors.width, 3);
  EXPECT_EQ(vectors.words, (Tokens{"a", "5"}));
}

TEST(WordVectors, OnlyWantedWordsAreKept) {
  const TemporaryFolder folder;
  const auto keep = [](std::string_view word) { return word != "b"; };
  const WordVectors vectors = read_word_vectors(folder.write("a.txt", "a 1 2\nb 3 4\nc 5 6\n"), keep);
  EXPECT_EQ(vectors.words, (Tokens{"a", "c"}));
  EXPECT_EQ(vectors.values, (Values{1, 2, 5, 6}));
}

TEST(WordVectors, BrokenLinesAreNamed) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    const std::string path = folder.write("a.txt", text);
    return error_message<io::Error>([&] { read_word_vectors(path); });
  };
  const std::string path = folder / "a.txt";
  EXPECT_EQ(message(""), path + ": is empty; expected word vectors");
  EXPECT_EQ(message("the 1 2\na 1 x\n"), path + ":2: \"x\" in place of a number; expected a word and 2 finite numbers");
  EXPECT_EQ(message("the 1 2\na 1 2 3\n"),
            path + ":2: more numbers than in the lines before; expected a word and 2 of them");
  EXPECT_EQ(message("the 1 2\n1 2\n"),
            path + ":2: fewer numbers than in the lines before; expected a word and 2 of them");
  for (const auto* number : {"nan", "inf", "1e99", "0x1p3x", "1,5", ""}) {
    EXPECT_NE(message(std::string("the 1 2\na ") + number + " 1\n").find(":2: "), std::string::npos) << number;
  }
  EXPECT_NE(message("the\n").find(":1: vectors of 0 numbers"), std::string::npos);
  EXPECT_NE(message("5 999999999\n").find(":1: vectors of 999999999 numbers"), std::string::npos);
  EXPECT_NE(message("the 1 2\n\n").find(":2: "), std::string::npos);
  EXPECT_NE(message("the 1 2\n" + std::string(2'000'000, 'x') + "\n").find("expected at most"), std::string::npos);
}

TEST(WordVectors, NumbersTooSmallForAFloatAreZero) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_word_vectors(folder.write("a.txt", "a 1e-60 2\n")).values, (Values{0, 2}));
}

}  // namespace
}  // namespace ramify::text
