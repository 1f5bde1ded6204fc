// Folders of published models, from which a tokenizer is chosen.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "text/tokenizing.h"

namespace ramify::text {
namespace {

using testing::error_message;
using testing::TemporaryFolder;

std::string load_error(const TemporaryFolder& folder) {
  return error_message<io::Error>([&] { Tokenizer::load(folder.path()); });
}

const char* kTokenizerJson =
    R"({"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "json": 1}, "unk_token": "[UNK]"},
        "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}})";

TEST(TokenizerFolder, TheFirstKindOfFileIsTaken) {
  const TemporaryFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.write("merges.txt", "a b\n");
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "ab"), (Tokens{"ab"}));
  folder.write("vocab.txt", "[UNK]\ntxt\n");
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path() + "/"), "txt"), (Tokens{"txt"}));
  folder.write("tokenizer.json", kTokenizerJson);
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "json"), (Tokens{"json"}));
}

TEST(TokenizerFolder, SentencePieceModelIsTakenBeforeItsCopyInJson) {
  const TemporaryFolder folder;
  folder.write("other.model", "not one");
  EXPECT_TRUE(load_error(folder).starts_with(folder / "other.model" + ": is no SentencePiece model"));
  folder.write("tokenizer.model", "not one");
  EXPECT_TRUE(load_error(folder).starts_with(folder / "tokenizer.model" + ": is no SentencePiece model"));
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})");
  EXPECT_TRUE(load_error(folder).starts_with(folder / "tokenizer.model" + ": is no SentencePiece model"));
  folder.write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})");
  EXPECT_TRUE(load_error(folder).starts_with(folder / "tokenizer.model" + ": is no SentencePiece model"));
  folder.write("tokenizer.json", kTokenizerJson);
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "json"), (Tokens{"json"}));
}

TEST(TokenizerFolder, NoTokenizerIsAnErrorThatNamesTheFolder) {
  const TemporaryFolder folder;
  const std::string expected =
      folder.path() +
      ": has no tokenizer; expected tokenizer.json, vocab.txt, vocab.json with merges.txt, or *.model in it";
  EXPECT_EQ(load_error(folder), expected);
  folder.write("config.json", "{}");
  EXPECT_EQ(load_error(folder), expected);
  folder.write("sentencepiece.bpe.model", "");
  EXPECT_EQ(load_error(folder), folder / "sentencepiece.bpe.model" +
                                    ": the model's ids are not those of this file; expected tokenizer.model");
  EXPECT_TRUE(error_message<io::Error>([&] { Tokenizer::load(folder / "none"); }).starts_with(folder / "none: "));
}

TEST(TokenizerFolder, TokensOfTheSettingsAreAdded) {
  const TemporaryFolder folder;
  folder.write("vocab.txt", "[UNK]\na\n[MASK]\n");
  folder.write("special_tokens_map.json", R"({"additional_special_tokens": ["[A]", {"content": "a"}], "x": 1})");
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "a[MASK][A]").size(), 5u);  // [A] has no id
  folder.write("added_tokens.json", R"({"[A]": 3})");
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "a[MASK][A]"), (Tokens{"a", "[MASK]", "[A]"}));
  folder.write("special_tokens_map.json", "{}");
  EXPECT_TRUE(load_error(folder).find("one of the normalised text") != std::string::npos) << load_error(folder);
  for (const auto* id : {"4294967299", "1e300", "3.5", "-1", "null"}) {
    folder.write("added_tokens.json", std::string(R"({"[A]": )") + id + "}");
    EXPECT_EQ(load_error(folder), folder / "added_tokens.json" + ": token \"[A]\" has no whole number as id") << id;
  }
  folder.write("added_tokens.json", "{}");
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"3": {"content": "[A]", "special": true},
                                           "2": {"content": "[MASK]", "lstrip": true, "normalized": false}}})");
  EXPECT_EQ(sources(*Tokenizer::load(folder.path()), "a [MASK][A]"), (Tokens{"a", " [MASK]", "[A]"}));
  for (const auto* decoder : {R"({"x": {"content": "[A]"}})", R"({"4": {"content": "[A]"}})"}) {
    folder.write("tokenizer_config.json", std::string(R"({"added_tokens_decoder": )") + decoder + "}");
    EXPECT_NE(load_error(folder).find("expected 3, behind the tokens before it"), std::string::npos);
  }
  for (const auto* settings :
       {"[]", R"({"added_tokens_decoder": 1})", R"({"added_tokens_decoder": {"3": 1}})", R"({"mask_token": 1})",
        R"({"mask_token": {}})", R"({"do_lower_case": 1})", R"({"additional_special_tokens": 1})"}) {
    folder.write("tokenizer_config.json", settings);
    EXPECT_TRUE(load_error(folder).starts_with(folder / "tokenizer_config.json" + ": ")) << settings;
  }
}

}  // namespace
}  // namespace ramify::text
