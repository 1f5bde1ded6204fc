#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "generators/error_message.h"
#include "text/byte_level.h"
#include "text/tokenizers.h"
#include "text/tokenizing.h"

namespace ramify::text {
namespace {

using nlohmann::json;
using testing::error_message;
using Ids = std::vector<int32_t>;

constexpr const char* kMark = "\xEF\xBF\xBD";
constexpr DecodeOptions kWithSpecial{.with_special_tokens = true};

// What each token adds, and what is left at the end.
Tokens streamed(const Tokenizer& tokenizer, const Ids& ids, const DecodeOptions& options = {}) {
  Detokenizer detokenizer(tokenizer, options);
  Tokens parts;
  for (const int32_t id : ids) parts.push_back(detokenizer.next(id));
  parts.push_back(detokenizer.finish());
  return parts;
}

// However ids come together: whole letters only, as at once, and the same after a round through the stored form.
void expect_sound_text(const Tokenizer& tokenizer) {
  const auto again = Tokenizer::from_json(tokenizer.to_json(), "schema.json");
  std::mt19937 random(21);
  for (int i = 0; i < 2'000; ++i) {
    Ids ids;
    for (size_t length = random() % 12; length > 0; --length) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.size())));
    }
    for (const DecodeOptions& options : {DecodeOptions{}, kWithSpecial}) {
      std::string joined;
      for (const std::string& part : streamed(tokenizer, ids, options)) {
        ASSERT_TRUE(is_valid_utf8(part));
        joined += part;
      }
      ASSERT_EQ(joined, decode(tokenizer, ids, options));
      ASSERT_EQ(joined, decode(*again, ids, options));
    }
  }
}

std::shared_ptr<const Tokenizer> wordpiece(Decoding decoding = {.rule = Decoding::Rule::wordpiece}) {
  WordPiece settings;
  settings.tokens = {"[UNK]", "[SEP]", "un", "##able", ".", "n't", "it", "'", "'s", "do"};
  settings.decoding = std::move(decoding);
  return with_added_tokens(make_wordpiece(std::move(settings), "vocab.txt"),
                           {{"[UNK]", 0}, {"[SEP]", 1}, {.content = "do not", .id = 10, .special = false}},
                           "vocab.txt");
}

TEST(Detokenizer, WordPieceHasSpacesBeforeWords) {
  const auto tokenizer = wordpiece();
  EXPECT_EQ(streamed(*tokenizer, {2, 3, 6, 8, 9, 5, 4, 1}),
            (Tokens{"un", "able", " it", "'s", " do", "n't", ".", "", ""}));
  EXPECT_EQ(streamed(*tokenizer, {1, 2, 1, 0}, kWithSpecial), (Tokens{"[SEP]", " un", " [SEP]", " [UNK]", ""}));
  EXPECT_EQ(decode(*tokenizer, Ids{1, 3, 4}), "##able.") << "the first token keeps its prefix, special ones aside";
  EXPECT_EQ(decode(*tokenizer, Ids{6, 7, 6}), "it ' it") << "what is more than one token is not cleaned";
  EXPECT_EQ(decode(*tokenizer, Ids{6, 10}), "it don't");
  EXPECT_EQ(decode(*tokenizer, Ids{}), "");
  expect_sound_text(*tokenizer);

  const auto plain = wordpiece(decoding_from_json({{"type", "WordPiece"}, {"prefix", "#"}, {"cleanup", false}}));
  EXPECT_EQ(decode(*plain, Ids{2, 3, 4, 9, 5}), "un#able . do n't");
  expect_sound_text(*plain);
}

// The bytes of U+1F600 and U+00E9, tokens of several of them, a letter, and two tokens that somebody added.
std::shared_ptr<const Tokenizer> byte_level() {
  ByteLevelBpe settings;
  for (const char* bytes : {"\xF0", "\x9F", "\x98", "\x80", "\xC3", "\xA9", "\x9F\x98", " a", "\x80 a\xC3"}) {
    settings.tokens.push_back(to_byte_alphabet(bytes));
  }
  return with_added_tokens(make_byte_level_bpe(std::move(settings), "vocab.json"),
                           {{"<end>", 9}, {.content = "b \xC3\xA9", .id = 10, .special = false}}, "vocab.json");
}

TEST(Detokenizer, BytesWaitUntilALetterIsWhole) {
  const auto tokenizer = byte_level();
  EXPECT_EQ(streamed(*tokenizer, {0, 1, 2, 3, 7}), (Tokens{"", "", "", "\xF0\x9F\x98\x80", " a", ""}));
  EXPECT_EQ(streamed(*tokenizer, {0, 6, 8, 5}), (Tokens{"", "", "\xF0\x9F\x98\x80 a", "\xC3\xA9", ""}));
  EXPECT_EQ(streamed(*tokenizer, {4, 9, 5}), (Tokens{"", "", "\xC3\xA9", ""})) << "a special token is not there";
  EXPECT_EQ(streamed(*tokenizer, {4, 9, 5}, kWithSpecial), (Tokens{"", kMark + std::string("<end>"), kMark, ""}));
  EXPECT_EQ(streamed(*tokenizer, {0, 6, 7, 0, 6}), (Tokens{"", "", kMark + std::string(" a"), "", "", kMark}))
      << "one mark for each broken letter";
  EXPECT_EQ(decode(*tokenizer, Ids{10, 10}),
            "b \xC3\xA9"
            "b \xC3\xA9");
  expect_sound_text(*tokenizer);
}

TEST(Detokenizer, AfterFinishANewTextBegins) {
  const auto tokenizer = wordpiece();
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.next(2), "un");
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.next(6), "it");
}

TEST(Detokenizer, IdsThatAreNoTokensAreRefused) {
  const auto tokenizer = byte_level();
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.next(4), "");
  EXPECT_EQ(error_message([&] { detokenizer.next(11); }), "detokenizer: no token 11 of 11");
  EXPECT_THROW(detokenizer.next(-1), std::invalid_argument);
  EXPECT_EQ(detokenizer.next(5), "\xC3\xA9") << "the text stays as it was";
}

TEST(Detokenizer, WithoutADecoderTokensHaveSpacesBetween) {
  const auto tokenizer = wordpiece(decoding_from_json(nullptr));
  EXPECT_EQ(streamed(*tokenizer, {2, 3, 1, 4}), (Tokens{"un", " ##able", "", " .", ""}));
  EXPECT_EQ(decode(*Tokenizer::word(Vocabulary({"<unk>", "a", "."})), Ids{1, 2, 0}), "a . <unk>");
  expect_sound_text(*tokenizer);
}

TEST(Detokenizer, UnsupportedDecodersAreNamed) {
  const auto tokenizer = wordpiece(decoding_from_json({{"type", "CTC"}}));
  const std::string expected = R"(detokenizer: the tokenizer has the decoder "{"type":"CTC"}"; expected )"
                               "WordPiece, ByteLevel, Metaspace or that of Llama";
  EXPECT_EQ(error_message([&] { Detokenizer{*tokenizer}; }), expected);
  const auto again = Tokenizer::from_json(tokenizer->to_json(), "schema.json");
  EXPECT_EQ(error_message([&] { Detokenizer{*again}; }), expected);
  for (const char* decoder :
       {R"({"type": "Sequence", "decoders": []})", R"({"type": "Metaspace", "replacement": "_"})"}) {
    EXPECT_EQ(decoding_from_json(json::parse(decoder)).rule, Decoding::Rule::unsupported) << decoder;
  }
  for (const char* decoder : {"1", "{}", "[]", R"({"type": 1})", R"({"type": "WordPiece", "cleanup": 1})"}) {
    EXPECT_THROW(decoding_from_json(json::parse(decoder)), json::exception) << decoder;
  }
}

TEST(Detokenizer, DecodersComeBackFromTheStoredForm) {
  for (const char* decoder :
       {"null", R"({"type":"ByteLevel"})", R"({"cleanup":false,"prefix":"","type":"WordPiece"})",
        R"({"prepend_scheme":"never","replacement":"▁","type":"Metaspace"})", R"({"type":"BPEDecoder"})"}) {
    EXPECT_EQ(decoding_to_json(decoding_from_json(json::parse(decoder))).dump(), decoder);
  }
}

}  // namespace
}  // namespace ramify::text
