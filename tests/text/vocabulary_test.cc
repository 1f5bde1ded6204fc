#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "generators/error_message.h"

namespace ramify::text {
namespace {

using Tokens = std::vector<std::string>;

TEST(Vocabulary, IdsArePlaces) {
  const Vocabulary vocabulary({"<unk>", "the", "", "a much longer token than eight bytes"});
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.id("the"), 1);
  EXPECT_EQ(vocabulary.id(""), 2);
  EXPECT_EQ(vocabulary.id("a much longer token than eight bytes"), 3);
  EXPECT_EQ(vocabulary.id("a much longer token than eight byteS"), 0);
  EXPECT_EQ(vocabulary.find("th"), -1);
  EXPECT_EQ(vocabulary.token(1), "the");
  EXPECT_THROW(vocabulary.token(4), std::out_of_range);
  EXPECT_THROW(vocabulary.token(-1), std::out_of_range);
  EXPECT_EQ(Vocabulary({"a", "[UNK]"}, 1).id("b"), 1);
}

TEST(Vocabulary, ManyTokensAreAllFound) {
  Tokens tokens;
  for (int i = 0; i < 100'000; ++i) tokens.push_back("w" + std::to_string(i * 7919));
  const Vocabulary vocabulary(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(vocabulary.find(tokens[i]), static_cast<int32_t>(i));
  EXPECT_EQ(vocabulary.find("w1"), -1);
  EXPECT_EQ(vocabulary.tokens(), tokens);
}

TEST(Vocabulary, RefusesTwiceTheSameTokenAndAnUnknownThatIsNotThere) {
  EXPECT_EQ(testing::error_message([] { Vocabulary({"a", "b", "a"}); }), "vocabulary: the token \"a\" comes twice");
  EXPECT_THROW(Vocabulary({"a"}, 1), std::invalid_argument);
  EXPECT_THROW(Vocabulary(Tokens{}), std::invalid_argument);
}

TEST(VocabularyBuilder, OrderIsByCountThenByBytes) {
  VocabularyBuilder builder;
  for (const auto* word : {"c", "b", "a", "b", "d", "d", "d"}) builder.add(word);
  EXPECT_EQ(builder.build().tokens(), (Tokens{"<unk>", "d", "b", "a", "c"}));
  EXPECT_EQ(builder.build({.min_count = 2}).tokens(), (Tokens{"<unk>", "d", "b"}));
  EXPECT_EQ(builder.build({.max_size = 4}).tokens(), (Tokens{"<unk>", "d", "b", "a"}));
  EXPECT_EQ(builder.build({.max_size = 0}).tokens(), (Tokens{"<unk>"}));
}

TEST(VocabularyBuilder, WordThatIsSpelledLikeTheUnknownOneIsUnknown) {
  VocabularyBuilder builder;
  builder.add("<unk>");
  builder.add("a");
  EXPECT_EQ(builder.build().tokens(), (Tokens{"<unk>", "a"}));
}

TEST(VocabularyBuilder, PartsMergeToTheWhole) {
  std::mt19937 random(10);
  VocabularyBuilder whole;
  VocabularyBuilder parts[3];
  for (int i = 0; i < 10'000; ++i) {
    const std::string word = std::to_string(random() % 300 * (random() % 20));
    whole.add(word);
    parts[random() % 3].add(word);
  }
  parts[2].merge(parts[0]);
  parts[2].merge(parts[1]);
  EXPECT_EQ(parts[2].build().tokens(), whole.build().tokens());
  EXPECT_FALSE(whole.forgotten());
}

TEST(VocabularyBuilder, RareWordsAreForgottenWhenThereAreTooMany) {
  VocabularyBuilder builder(100);
  for (int i = 0; i < 10'000; ++i) {
    builder.add("common");
    builder.add(std::to_string(i));
    ASSERT_LE(builder.distinct(), 100u);
  }
  EXPECT_TRUE(builder.forgotten());
  EXPECT_EQ(builder.count("common"), 10'000);
  EXPECT_EQ(builder.build().token(1), "common");
}

}  // namespace
}  // namespace ramify::text
