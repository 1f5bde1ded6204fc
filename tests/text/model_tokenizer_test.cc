#include "text/model_tokenizer.h"

#include <gtest/gtest.h>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"

namespace ramify::text {
namespace {

using testing::error_message;
using testing::TemporaryFolder;
using Ids = std::vector<int32_t>;
using Spans = std::vector<Span>;

// [UNK] 0, [CLS] 1, [SEP] 2, [PAD] 3, a 4, b 5, ##c 6
ModelTokenizer bert() {
  const TemporaryFolder folder;
  folder.write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\na\nb\n##c\n");
  folder.write("config.json", R"({"model_type": "bert"})");
  return ModelTokenizer::load(folder.path());
}

TEST(ModelTokenizer, TextsGetTheSpecialTokensOfTheFolder) {
  const auto tokenizer = bert();
  EXPECT_EQ(tokenizer.encode("a bc").ids, (Ids{1, 4, 5, 6, 2}));
  EXPECT_EQ(tokenizer.encode("a bc").types, Ids(5, 0));
  EXPECT_EQ(tokenizer.encode("").ids, (Ids{1, 2}));
  EXPECT_EQ(tokenizer.encode_pair("a bc", "b").ids, (Ids{1, 4, 5, 6, 2, 5, 2}));
  EXPECT_EQ(tokenizer.encode_pair("a bc", "b").types, (Ids{0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(tokenizer.special_tokens().padding(), 3);
}

TEST(ModelTokenizer, TruncationKeepsTheSpecialTokens) {
  const auto tokenizer = bert();
  EXPECT_EQ(tokenizer.encode("a bc", {.max_length = 4}).ids, (Ids{1, 4, 5, 2}));
  EXPECT_EQ(tokenizer.encode("a bc", {.max_length = 2}).ids, (Ids{1, 2}));
  EXPECT_EQ(tokenizer.encode_pair("a bc", "b", {.max_length = 6}).ids, (Ids{1, 4, 5, 2, 5, 2}));
  EXPECT_THROW(tokenizer.encode("a bc", {.max_length = 1}), std::invalid_argument);
}

TEST(ModelTokenizer, SpansAreBytesOfTheTextAndEmptyForSpecialTokens) {
  const auto tokenizer = bert();
  EXPECT_TRUE(tokenizer.encode("a bc").spans.empty());
  EXPECT_EQ(tokenizer.encode("a bc", {.with_spans = true}).spans, (Spans{{}, {0, 1}, {2, 3}, {3, 4}, {}}));
  EXPECT_EQ(tokenizer.encode("a bc", {.max_length = 3, .with_spans = true}).spans, (Spans{{}, {0, 1}, {}}));
  const auto pair = tokenizer.encode_pair("a bc", "\xC3\xA1  b", {.max_length = 6, .with_spans = true});
  EXPECT_EQ(pair.ids, (Ids{1, 4, 5, 2, 4, 2}));
  EXPECT_EQ(pair.spans, (Spans{{}, {0, 1}, {2, 3}, {}, {0, 2}, {}}));
}

TEST(ModelTokenizer, SpansOfBrokenUtf8AreOfItsBytes) {
  const auto input = bert().encode("a\xFF b", {.with_spans = true});  // U+FFFD is no part of a word of BERT's
  EXPECT_EQ(input.ids, (Ids{1, 4, 5, 2}));
  EXPECT_EQ(input.spans, (Spans{{}, {0, 1}, {3, 4}, {}}));
}

TEST(ModelTokenizer, IdsBecomeTextAgain) {
  const auto tokenizer = bert();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a bc").ids), "a bc");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a bc").ids, {.with_special_tokens = true}), "[CLS] a bc [SEP]");
  EXPECT_THROW(tokenizer.decode(Ids{7}), std::invalid_argument);
}

TEST(ModelTokenizer, WhatIsNoFolderOfAModelIsNamed) {
  const TemporaryFolder folder;
  const auto message = [](const std::string& path) {
    return error_message<io::Error>([&] { ModelTokenizer::load(path); });
  };
  EXPECT_EQ(message(folder / "none"), folder / "none" + ": is no folder; expected that of a published model");
  folder.write("vocab.txt", "[UNK]\n[CLS]\n");
  EXPECT_EQ(message(folder / "vocab.txt"), folder / "vocab.txt" + ": is no folder; expected that of a published model");
  folder.write("config.json", R"({"model_type": "bert"})");
  EXPECT_EQ(message(folder.path()), folder.path() + ": the tokenizer has no \"[SEP]\", the sep_token");
  folder.write("tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {}}})");
  EXPECT_EQ(message(folder.path()),
            folder / "tokenizer.json" + ": has a model of type \"WordLevel\"; expected WordPiece or BPE");
  folder.write("tokenizer.json", std::string(100'000, '['));
  EXPECT_TRUE(message(folder.path()).starts_with(folder / "tokenizer.json" + ": is not valid JSON"));
  folder.write("tokenizer.json", std::string(100'000, '[') + std::string(100'000, ']'));
  EXPECT_TRUE(message(folder.path()).starts_with(folder / "tokenizer.json" + ": is no tokenizer.json"));
}

}  // namespace
}  // namespace ramify::text
