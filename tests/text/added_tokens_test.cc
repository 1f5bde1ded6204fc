#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "generators/error_message.h"
#include "io/error.h"
#include "text/tokenizers.h"
#include "text/tokenizing.h"

namespace ramify::text {
namespace {

using testing::error_message;

std::shared_ptr<const Tokenizer> with(std::vector<AddedToken> added) {
  return with_added_tokens(Tokenizer::word(Vocabulary({"<unk>", "a", "b", "<s>"})), std::move(added), "file.json");
}

TEST(AddedTokens, TheLongestAtTheLeftmostPlaceIsTaken) {
  const auto tokenizer = with({{"<s>", 3}, {"<s><s>", 4}, {"s>", 5}});
  EXPECT_EQ(tokens(*tokenizer, "a<s>b"), (Tokens{"a", "<s>", "b"}));
  EXPECT_EQ(tokens(*tokenizer, "<s><s><s>s>"), (Tokens{"<s><s>", "<s>", "s>"}));
  EXPECT_EQ(tokens(*tokenizer, "<s"), tokens(*Tokenizer::word(Vocabulary({"<unk>", "a", "b", "<s>"})), "<s"));
  EXPECT_EQ(sources(*tokenizer, " a <s> b"), (Tokens{"a", "<s>", "b"}));
  EXPECT_EQ(tokenizer->size(), 6);
  EXPECT_EQ(tokenizer->token(5), "s>");
  EXPECT_EQ(tokenizer->find("s>"), 5);
  EXPECT_EQ(tokenizer->find("b"), 2);
  expect_same_after_json(*tokenizer, "a <s><s><s> b");
  expect_sound_everywhere(*tokenizer);
}

TEST(AddedTokens, WhiteSpaceIsStrippedOnTheSidesAskedFor) {
  const AddedToken mask{.content = "<m>", .id = 4, .strips_left = true, .strips_right = true};
  const std::string text = "a \xC2\xA0<m>\n\t <m> b";
  EXPECT_EQ(sources(*with({mask}), text), (Tokens{"a", " \xC2\xA0<m>\n\t ", "<m> ", "b"}));
  EXPECT_EQ(sources(*with({{.content = "<m>", .id = 4, .strips_left = true}}), text),
            (Tokens{"a", " \xC2\xA0<m>", "\n\t <m>", "b"}));
  EXPECT_EQ(sources(*with({{.content = "<m>", .id = 4, .strips_right = true}}), text),
            (Tokens{"a", "<m>\n\t ", "<m> ", "b"}));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  const auto tokenizer = with({{.content = "go", .id = 4, .single_word = true}});
  for (const auto* text : {"go", "a go b", "(go)", "go\xE2\x80\x94"}) {
    EXPECT_NE(tokens(*tokenizer, text), Tokens(tokens(*tokenizer, text).size(), "<unk>")) << text;
  }
  for (const auto* text : {"going", "xgo", "go_", "\xC3\xA9go", "go2", "go\xCC\x81", "go\xE2\x80\x8D"}) {
    EXPECT_EQ(tokens(*tokenizer, text), Tokens(tokens(*tokenizer, text).size(), "<unk>")) << text;
  }
}

TEST(AddedTokens, OnlySpecialOnesAreSpecial) {
  const auto tokenizer = with({{"<s>", 3}, {.content = "c", .id = 4, .special = false}});
  EXPECT_TRUE(tokenizer->is_special(3));
  for (const int32_t id : {-1, 0, 4, 5}) EXPECT_FALSE(tokenizer->is_special(id)) << id;
  auto stored = tokenizer->to_json();
  EXPECT_TRUE(Tokenizer::from_json(stored, "schema.json")->is_special(3));
  EXPECT_FALSE(Tokenizer::from_json(stored, "schema.json")->is_special(4));
  stored["added_tokens"][0].erase("special");  // as it was stored once
  EXPECT_TRUE(Tokenizer::from_json(stored, "schema.json")->is_special(3));
}

TEST(AddedTokens, NormalizedOnesComeAfterTheOthers) {
  const auto tokenizer = with({{.content = "ab", .id = 4, .normalized = true}, {.content = "bc", .id = 5}});
  EXPECT_EQ(tokens(*tokenizer, "abc"), (Tokens{"a", "bc"}));
  EXPECT_EQ(tokens(*tokenizer, "ab"), (Tokens{"ab"}));
  expect_same_after_json(*tokenizer, "ab abc");
}

TEST(AddedTokens, NoneAreNeeded) {
  const auto base = Tokenizer::word(Vocabulary({"<unk>"}));
  EXPECT_EQ(with_added_tokens(base, {}, "file.json"), base);
  EXPECT_EQ(with_added_tokens(base, {{"", 7}}, "file.json"), base);
}

TEST(AddedTokens, IdsMustFit) {
  const auto message = [](std::vector<AddedToken> added) {
    return error_message<io::Error>([&] { with(std::move(added)); });
  };
  EXPECT_EQ(message({{"<s>", 2}}), "file.json: the added token \"<s>\" has the id 2; expected 3, as in the vocabulary");
  for (const int32_t id : {2, 5, -1, 2'000'000'000}) {
    EXPECT_EQ(message({{"<m>", id}}), "file.json: the added token \"<m>\" has the id " + std::to_string(id) +
                                          "; expected 4, behind the tokens before it");
  }
  EXPECT_EQ(message({{"<m>", 4}, {"<n>", 4}}),
            "file.json: the added token \"<n>\" has the id 4; expected 5, behind the tokens before it");
  EXPECT_EQ(message({{"<s>", 3}, {"<s>", 3}}), "file.json: the added token \"<s>\" comes twice");
}

// A search that begins anew behind every match, or looks at all tokens everywhere, would take hours.
TEST(AddedTokens, ManyTokensInALongTextTakeLinearTime) {
  std::vector<AddedToken> many;
  for (int32_t i = 0; i < 20'000; ++i) {
    many.push_back({.content = "<extra_" + std::to_string(i) + ">", .id = 4 + i, .strips_left = true});
  }
  const auto tokenizer = with(many);
  for (const std::string piece : {"<", "<extra_7>", "   ", " <extra_19999>", "<extra_"}) {
    std::string text;
    while (text.size() < 1'000'000) text += piece;
    ids(*tokenizer, text);
  }
}

}  // namespace
}  // namespace ramify::text
