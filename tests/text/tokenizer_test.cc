#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "text/base64.h"
#include "text/detokenizer.h"
#include "text/tokenizers.h"
#include "text/tokenizing.h"

namespace ramify::text {
namespace {

using testing::error_message;
using testing::TemporaryFolder;

TEST(WordTokenizer, WordsAreLookedUp) {
  const auto tokenizer = Tokenizer::word(Vocabulary({"<unk>", "do", "n't", "go"}));
  EXPECT_EQ(ids(*tokenizer, "Don't stop"), (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(sources(*tokenizer, "Don't stop"), (Tokens{"Do", "n't", "stop"}));
  EXPECT_EQ(tokenizer->size(), 4);
  expect_same_after_json(*tokenizer, "Don't go on");
  expect_sound_everywhere(*tokenizer);
}

const std::string kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\nthe\nfox\n##es\n,\n.\n\xE6\xBC\xA2\ncafe\n##\xC3\xA9\n[\n]\ni\n"
    "\xE1\x84\x80\n##\xE1\x85\xA1\no\xF0\x9D\x85\xA5\xF0\x9D\x85\xAD\n";

TEST(WordPiece, WordsAreCutIntoTheLongestPieces) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("vocab.txt", kVocabulary));
  EXPECT_EQ(tokens(*tokenizer, "The unaffable foxes, the foxable."),
            (Tokens{"the", "un", "##aff", "##able", "fox", "##es", ",", "the", "fox", "##able", "."}));
  EXPECT_EQ(sources(*tokenizer, "The UNAFFABLE"), (Tokens{"The", "UN", "AFF", "ABLE"}));
  EXPECT_EQ(tokenizer->unknown(), 1);
  expect_same_after_json(*tokenizer, "The unaffable fox");
  expect_sound_everywhere(*tokenizer);
}

TEST(WordPiece, WordThatCannotBeCutIsUnknownAsAWhole) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("vocab.txt", kVocabulary));
  EXPECT_EQ(tokens(*tokenizer, "unaffx the"), (Tokens{"[UNK]", "the"}));
  EXPECT_EQ(sources(*tokenizer, "unaffx the"), (Tokens{"unaffx", "the"}));
  std::string long_word = "un";
  for (int i = 0; i < 32; ++i) long_word += "aff";  // 98 letters
  EXPECT_EQ(tokens(*tokenizer, long_word + "es").size(), 34u);
  EXPECT_EQ(tokens(*tokenizer, long_word + "aff"), (Tokens{"[UNK]"}));
  EXPECT_EQ(sources(*tokenizer, long_word + "aff the"), (Tokens{long_word + "aff", "the"}));
}

TEST(WordPiece, AccentsCaseControlsAndChineseFollowBert) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("vocab.txt", kVocabulary));
  EXPECT_EQ(tokens(*tokenizer, "CAF\xC3\x89 cafe\xCC\x81"), (Tokens{"cafe", "cafe"}));
  EXPECT_EQ(sources(*tokenizer, "CAF\xC3\x89"), (Tokens{"CAF\xC3\x89"}));
  EXPECT_EQ(tokens(*tokenizer, "\xC4\xB0"), (Tokens{"i"}));  // I with a dot
  EXPECT_EQ(tokens(*tokenizer,
                   "\xE6\xBC\xA2\xE6\xBC\xA2"
                   "fox"),
            (Tokens{"\xE6\xBC\xA2", "\xE6\xBC\xA2", "fox"}));
  EXPECT_EQ(tokens(*tokenizer, "f\xC2\xADo\x07x\xEF\xBF\xBD\xFF"), (Tokens{"fox"}));
  EXPECT_EQ(tokens(*tokenizer,
                   "the\tfox\xC2\xA0the\xE3\x80\x80"
                   "fox"),
            (Tokens{"the", "fox", "the", "fox"}));
  EXPECT_EQ(tokens(*tokenizer, "\xEA\xB0\x80"), (Tokens{"\xE1\x84\x80", "##\xE1\x85\xA1"}));  // Hangul, taken apart
  EXPECT_EQ(sources(*tokenizer, "\xEA\xB0\x80"), (Tokens{"\xEA\xB0\x80", "\xEA\xB0\x80"}));
  EXPECT_EQ(tokens(*tokenizer, "o\xF0\x9D\x85\xAD\xF0\x9D\x85\xA5"),  // marks out of their canonical order
            (Tokens{"o\xF0\x9D\x85\xA5\xF0\x9D\x85\xAD"}));
  EXPECT_EQ(
      tokens(*tokenizer, "o\xF0\x9D\x85\xAD\xEF\xB8\x8C\xF0\x9D\x85\xA5"),  // one that is stripped keeps them apart
      (Tokens{"[UNK]"}));
  EXPECT_EQ(tokens(*tokenizer, "[fox]"), (Tokens{"[", "fox", "]"}));
}

TEST(WordPiece, CaseIsKeptWhereTheVocabularyOrItsSettingsSaySo) {
  const TemporaryFolder folder;
  EXPECT_EQ(tokens(*Tokenizer::load(folder.write("vocab.txt", "[UNK]\nThe\nthe\n")), "The the THE"),
            (Tokens{"The", "the", "[UNK]"}));
  folder.write("tokenizer_config.json", R"({"do_lower_case": true, "strip_accents": null})");
  EXPECT_EQ(tokens(*Tokenizer::load(folder / "vocab.txt"), "The THE"), (Tokens{"the", "the"}));
  folder.write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(tokens(*Tokenizer::load(folder.write("vocab.txt", "[UNK]\nthe\n\xC3\xA9\n")), "The the \xC3\xA9"),
            (Tokens{"[UNK]", "the", "\xC3\xA9"}));
}

nlohmann::json tokenizer_json() {
  return {{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}, {"strip_accents", nullptr}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "<u>"},
            {"continuing_subword_prefix", "@@"},
            {"max_input_chars_per_word", 6},
            {"vocab", {{"un", 2}, {"<u>", 0}, {"@@aff", 1}}}}}};
}

TEST(WordPiece, TokenizerJsonHasItsOwnSettings) {
  const TemporaryFolder folder;
  const auto load = [&](const nlohmann::json& file) {
    return Tokenizer::load(folder.write("tokenizer.json", file.dump()));
  };
  EXPECT_EQ(ids(*load(tokenizer_json()), "Unaff unaffaf"), (std::vector<int32_t>{2, 1, 0}));
  auto plain = tokenizer_json();
  plain["normalizer"] = nullptr;
  EXPECT_EQ(ids(*load(plain), "Un un"), (std::vector<int32_t>{0, 2}));
  expect_same_after_json(*load(tokenizer_json()), "unaff");
}

TEST(WordPiece, SpecialTokensOfTheFileAreFoundInTheText) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("vocab.txt", kVocabulary));
  EXPECT_EQ(tokens(*tokenizer, "the[SEP]fox [sep]"), (Tokens{"the", "[SEP]", "fox", "[", "[UNK]", "]"}));
  EXPECT_EQ(sources(*tokenizer, "The [PAD]!"), (Tokens{"The", "[PAD]", "!"}));
  EXPECT_EQ(tokenizer->find("[SEP]"), 3);
  EXPECT_EQ(tokenizer->find("fox"), 8);
  EXPECT_EQ(tokenizer->find("foxes"), -1);
  expect_same_after_json(*tokenizer, "the [SEP] fox");

  auto file = tokenizer_json();
  file["added_tokens"] = {{{"id", 3}, {"content", "Un"}, {"normalized", false}}};
  const auto other = Tokenizer::load(folder.write("tokenizer.json", file.dump()));
  EXPECT_EQ(ids(*other, "Unaff unaff"), (std::vector<int32_t>{3, 0, 2, 1}));
  EXPECT_EQ(other->size(), 4);
  EXPECT_EQ(other->token(3), "Un");
  EXPECT_THROW(other->token(4), std::out_of_range);
  expect_same_after_json(*other, "Unaff unaff");
  expect_sound_everywhere(*other);
}

TEST(WordPiece, FilesOfAnotherKindAreNamed) {
  const TemporaryFolder folder;
  const auto message = [&](const char* pointer, const nlohmann::json& value) {
    auto file = tokenizer_json();
    file[nlohmann::json::json_pointer(pointer)] = value;
    const std::string path = folder.write("tokenizer.json", file.dump());
    const std::string text = error_message<io::Error>([&] { Tokenizer::load(path); });
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text.substr(path.size() + 2);
  };
  EXPECT_EQ(message("/model/type", "Unigram"), "has a model of type \"Unigram\"; expected WordPiece or BPE");
  EXPECT_EQ(message("/pre_tokenizer", nullptr), "has another pre_tokenizer; expected BertPreTokenizer");
  EXPECT_EQ(message("/normalizer/type", "NFC"), "has the normalizer \"NFC\"; expected BertNormalizer");
  EXPECT_EQ(message("/model/vocab/un", 7), "token \"un\" has the id 7; expected each from 0 to 2 once");
  EXPECT_EQ(message("/model/vocab/un", -1), "token \"un\" has the id -1; expected each from 0 to 2 once");
  EXPECT_EQ(message("/model/vocab/un", 1), "token \"un\" has the id 1; expected each from 0 to 2 once");
  EXPECT_EQ(message("/added_tokens", {{{"id", 3}, {"content", "Un"}, {"normalized", true}}}),
            "the added token \"Un\" is one of the normalised text; expected \"normalized\": false");
  EXPECT_EQ(message("/model/unk_token", "?"), "the vocabulary has no \"?\"; expected a WordPiece vocabulary");
  EXPECT_EQ(message("/model/vocab/un", "text"), "token \"un\" has an id that is no whole number");
  EXPECT_EQ(message("/model/vocab/un", 1.5), "token \"un\" has an id that is no whole number");
  EXPECT_EQ(message("/model/vocab", "text"), "the vocabulary is no object of ids by token");
  for (const auto* pointer : {"/model", "/model/unk_token", "/model/max_input_chars_per_word", "/added_tokens"}) {
    EXPECT_NE(message(pointer, nlohmann::json::array({1})).find("is no tokenizer.json"), std::string::npos) << pointer;
  }
  const auto vocab_message = [&](const std::string& text) {
    const std::string path = folder.write("vocab.txt", text);
    return error_message<io::Error>([&] { Tokenizer::load(path); });
  };
  EXPECT_NE(vocab_message("[UNK]\na\na\n").find("the token \"a\" comes twice"), std::string::npos);
  EXPECT_NE(vocab_message("a\nb\n").find("has no \"[UNK]\""), std::string::npos);
  EXPECT_NE(vocab_message("[UNK]\n\xFF\n").find("token 1 is not valid UTF-8"), std::string::npos);
  EXPECT_NE(vocab_message("[UNK]\n" + std::string(5000, 'x')).find("expected at most 4096"), std::string::npos);
  EXPECT_NE(vocab_message("").find("has no \"[UNK]\""), std::string::npos);
}

// Each of these would take hours if a word were looked at from every place to every other.
TEST(WordPiece, LongTextsTakeLinearTime) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("vocab.txt", kVocabulary));
  for (const std::string piece :
       {"a", "aff", ",", " ", "\xCC\x81", "\xE3\x80\xAE\xE3\x80\xAF", "\xE6\xBC\xA2", "\x01"}) {
    std::string text = "un";
    for (int i = 0; i < 200'000; ++i) text += piece;
    ids(*tokenizer, text);
  }
}

// A small model, trained on the spot.
std::string sentencepiece_model(const std::string& options = "--vocab_size=40") {
  class Sentences : public sentencepiece::SentenceIterator {
   public:
    bool done() const override { return next_ == std::size(kTexts); }
    void Next() override { ++next_; }
    const std::string& value() const override { return kTexts[next_]; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    const std::string kTexts[4] = {"the quick brown fox", "jumps over the lazy dog", "the dog and the fox",
                                   "a quick dog jumps"};
    size_t next_ = 0;
  } sentences;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      options + " --model_type=bpe --minloglevel=2 --num_threads=1", &sentences, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

TEST(SentencePiece, ModelFileIsUsed) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("tokenizer.model", sentencepiece_model()));
  EXPECT_EQ(tokenizer->size(), 40);
  EXPECT_EQ(tokenizer->token(tokenizer->unknown()), "<unk>");
  std::string shown;
  for (const auto& token : tokens(*tokenizer, "the fox jumps")) shown += token;
  EXPECT_EQ(shown,
            "\xE2\x96\x81the\xE2\x96\x81"
            "fox\xE2\x96\x81jumps");
  std::string covered;
  for (const auto& source : sources(*tokenizer, "the fox jumps")) covered += source;
  EXPECT_EQ(covered, "the fox jumps");
  EXPECT_THROW(tokenizer->token(40), std::out_of_range);
  expect_same_after_json(*tokenizer, "the lazy dog and ?");
  expect_sound_everywhere(*tokenizer);
}

const std::string kBytesModel =
    "--vocab_size=300 --byte_fallback=true --normalization_rule_name=identity --remove_extra_whitespaces=false";

TEST(SentencePiece, TextsComeBack) {
  const auto tokenizer = make_sentencepiece(sentencepiece_model(kBytesModel), "a.model");
  for (const std::string text :
       {"the fox jumps", " the  fox ", "", " ", "\n", "fox\xF0\x9F\x98\x80\xC3\xA9.\n\ndog?"}) {
    EXPECT_EQ(decode(*tokenizer, ids(*tokenizer, text)), text);
  }
  const std::vector<int32_t> special = {tokenizer->find("<s>"), ids(*tokenizer, "a")[0], tokenizer->unknown()};
  EXPECT_EQ(decode(*tokenizer, special), "a");
  EXPECT_EQ(decode(*tokenizer, special, {.with_special_tokens = true}), "<s> a<unk>");
  const auto without_space =
      sentencepiece_model("--vocab_size=40 --add_dummy_prefix=false --remove_extra_whitespaces=false");
  EXPECT_EQ(
      decode(*make_sentencepiece(without_space, "a.model"), ids(*make_sentencepiece(without_space, "a.model"), " fox")),
      " fox");
}

TEST(SentencePiece, BytesInARowAreOneTextOrNone) {
  const auto tokenizer = make_sentencepiece(sentencepiece_model(kBytesModel), "a.model");
  const auto parts = [&](const Tokens& pieces) {
    Detokenizer detokenizer(*tokenizer);
    Tokens all;
    for (const std::string& piece : pieces) all.push_back(detokenizer.next(tokenizer->find(piece)));
    all.push_back(detokenizer.finish());
    return all;
  };
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(parts({"<0x0A>", "<0xC3>", "<0xA9>", "</s>", "d"}), (Tokens{"", "", "", "",
                                                                        "\n\xC3\xA9"
                                                                        "d",
                                                                        ""}));
  EXPECT_EQ(parts({"d", "<0xC3>", "<0xA9>"}), (Tokens{"d", "", "", "\xC3\xA9"}));
  EXPECT_EQ(parts({"<0x41>", "<0xC3>", "d"}), (Tokens{"", "", mark + mark + "d", ""}));
  EXPECT_EQ(parts({"<0x20>", "<0x20>"}), (Tokens{"", "", " "}));
}

TEST(SentencePiece, ADecoderBesideTheModelIsFollowed) {
  const TemporaryFolder folder;
  folder.write("tokenizer.model", sentencepiece_model());
  const auto text = [&](const nlohmann::json& decoder) {
    folder.write("tokenizer.json", nlohmann::json{{"model", {{"type", "Unigram"}}}, {"decoder", decoder}}.dump());
    const auto tokenizer = Tokenizer::load(folder.path());
    const std::vector<int32_t> all = {tokenizer->find("\xE2\x96\x81"), tokenizer->find("\xE2\x96\x81the")};
    const std::string shown = decode(*tokenizer, all);
    EXPECT_EQ(decode(*Tokenizer::from_json(tokenizer->to_json(), "schema.json"), all), shown);
    return shown;
  };
  const nlohmann::json space = {{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}};
  nlohmann::json llama = {space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  EXPECT_EQ(text({{"type", "Sequence"}, {"decoders", llama}}), "  the");
  llama.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  EXPECT_EQ(text({{"type", "Sequence"}, {"decoders", llama}}), " the");
  EXPECT_EQ(text({{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}}), " the");
  EXPECT_EQ(text({{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"add_prefix_space", false}}), "  the");
  EXPECT_EQ(error_message<io::Error>([&] { text(1); }).find(folder / "tokenizer.json" + ": is no tokenizer.json"), 0u);
}

TEST(SentencePiece, BrokenModelsAreNamed) {
  const TemporaryFolder folder;
  const std::string model = sentencepiece_model();
  const auto message = [&](const std::string& bytes) {
    const std::string path = folder.write("a.model", bytes);
    return error_message<io::Error>([&] { Tokenizer::load(path); });
  };
  for (const std::string& bytes : {std::string(), std::string("text"), model.substr(0, model.size() / 2)}) {
    EXPECT_TRUE(message(bytes).starts_with(folder / "a.model" + ": is no SentencePiece model")) << message(bytes);
  }
}

TEST(Tokenizer, StoredFormOfAnotherKindIsNamed) {
  const auto message = [](const char* stored) {
    return error_message<io::Error>([&] { Tokenizer::from_json(nlohmann::json::parse(stored), "schema.json"); });
  };
  EXPECT_EQ(message(R"({"type": "letters"})"),
            "schema.json: a tokenizer of type \"letters\"; expected word, wordpiece, byte_level_bpe or "
            "sentencepiece");
  EXPECT_EQ(message(R"({"type": "sentencepiece", "model": "!"})"),
            "schema.json: the SentencePiece model is not base64");
  EXPECT_NE(message(R"({"type": "word", "tokens": ["a", "a"]})").find("comes twice"), std::string::npos);
  for (const auto* stored :
       {"[]", "{}", R"({"type": 1})", R"({"type": "word"})", R"({"type": "word", "tokens": [1]})",
        R"({"type": "wordpiece", "tokens": []})", R"({"type": "byte_level_bpe", "tokens": ["a"]})",
        R"({"type": "sentencepiece"})", R"({"type": "word", "tokens": ["a"], "added_tokens": [{"content": 1}]})"}) {
    EXPECT_TRUE(message(stored).starts_with("schema.json: is no tokenizer: ")) << stored;
  }
}

TEST(Base64, BytesSurvive) {
  EXPECT_EQ(to_base64("Man"), "TWFu");
  EXPECT_EQ(to_base64("Ma"), "TWE=");
  EXPECT_EQ(to_base64("M"), "TQ==");
  std::mt19937 random(12);
  for (size_t length = 0; length < 100; ++length) {
    std::string bytes;
    for (size_t i = 0; i < length; ++i) bytes += static_cast<char>(random());
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
  for (const auto* text : {"TWF", "TW!u", "T===", "TWFu\n", "=WFu"}) EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ramify::text
