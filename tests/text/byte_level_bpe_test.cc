// Byte-level BPE behind Tokenizer: what it makes of texts, and the files that it reads.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/tokenizing.h"

namespace ramify::text {
namespace {

using nlohmann::json;
using testing::error_message;
using testing::TemporaryFolder;

const std::string kSpace = "\xC4\xA0";  // in the byte alphabet

// All bytes, then what these merges make.
const std::vector<std::pair<std::string, std::string>> kMerges = {
    {"t", "h"},
    {kSpace, "th"},
    {"th", "e"},
    {kSpace + "th", "e"},
    {"l", "o"},
    {kSpace, "lo"},
    {kSpace + "lo", "w"},
    {"lo", "w"},
    {"e", "r"},
    {"a", "a"},
    {"aa", "aa"},
    {"\xC3\x83", "\xC2\xA9"},  // the two bytes of an e with an accent
    {"\xC3\xB0", "\xC5\x81"}   // two of the four bytes of an emoji
};

json vocabulary() {
  json ids = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    ids[to_byte_alphabet({&c, 1})] = byte;
  }
  for (const auto& [left, right] : kMerges) {
    const auto size = ids.size();
    if (!ids.contains(left + right)) ids[left + right] = size;
  }
  for (const auto* special : {"<s>", "</s>", "<mask>"}) {
    const auto size = ids.size();
    ids[special] = size;
  }
  return ids;
}

std::string merges_txt() {
  std::string lines = "#version: 0.2\n";
  for (const auto& [left, right] : kMerges) lines += left + " " + right + "\n";
  return lines;
}

json bpe_json() {
  json merges = json::array();
  for (const auto& [left, right] : kMerges) merges.push_back(left + " " + right);
  return {{"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary()}, {"merges", merges}}}};
}

struct Files {
  TemporaryFolder folder;
  std::shared_ptr<const Tokenizer> load(const json& file) const {
    return Tokenizer::load(folder.write("tokenizer.json", file.dump()));
  }
  std::shared_ptr<const Tokenizer> load_pair(const std::string& vocab, const std::string& merges) const {
    folder.write("merges.txt", merges);
    return Tokenizer::load(folder.write("vocab.json", vocab));
  }
  std::shared_ptr<const Tokenizer> load_pair() const { return load_pair(vocabulary().dump(), merges_txt()); }
};

TEST(ByteLevelBpe, WordsAreMergedByRank) {
  const Files files;
  const auto tokenizer = files.load_pair();
  EXPECT_EQ(tokens(*tokenizer, "the lower the"), (Tokens{"the", kSpace + "low", "er", kSpace + "the"}));
  EXPECT_EQ(tokens(*tokenizer, "aaaaaaa"), (Tokens{"aaaa", "aa", "a"}));
  EXPECT_EQ(sources(*tokenizer, "the lower the"), (Tokens{"the", " low", "er", " the"}));
  EXPECT_EQ(tokens(*tokenizer, "\xC3\xA9"), (Tokens{"\xC3\x83\xC2\xA9"}));
  EXPECT_EQ(tokens(*tokenizer, ""), Tokens{});
  EXPECT_EQ(tokenizer->find(kSpace + "the"), 258 + 1);
  EXPECT_EQ(tokenizer->find("theb"), -1);
  EXPECT_EQ(tokenizer->unknown(), -1);
  expect_same_after_json(*tokenizer, "the lower <mask> aaaaaaa");
  expect_sound_everywhere(*tokenizer);
}

// A token may end inside a letter; its span does not.
TEST(ByteLevelBpe, SpansAreOfWholeLetters) {
  const Files files;
  const auto tokenizer = files.load_pair();
  const std::string emoji = "\xF0\x9F\x98\x80";
  EXPECT_EQ(tokens(*tokenizer, emoji).size(), 3u);
  EXPECT_EQ(sources(*tokenizer, "a" + emoji), (Tokens{"a", emoji, emoji, emoji}));
  EXPECT_EQ(sources(*tokenizer,
                    "a\xFF"
                    "b\xC3"),
            (Tokens{"a", "\xFF", "\xFF", "\xFF", "b", "\xC3", "\xC3", "\xC3"}));
}

TEST(ByteLevelBpe, PrefixSpaceIsPutBeforeATextThatHasNone) {
  const Files files;
  auto file = bpe_json();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = files.load(file);
  EXPECT_EQ(tokens(*tokenizer, "the lo"), (Tokens{kSpace + "the", kSpace + "lo"}));
  EXPECT_EQ(tokens(*tokenizer, " the"), (Tokens{kSpace + "the"}));
  EXPECT_EQ(tokens(*tokenizer, "\nthe"), (Tokens{kSpace, "\xC4\x8A", "the"}));
  EXPECT_EQ(tokens(*tokenizer, ""), Tokens{});
  EXPECT_EQ(sources(*tokenizer, "the lo"), (Tokens{"the", " lo"}));
  EXPECT_EQ(sources(*tokenizer, "\nthe"), (Tokens{"\n", "\n", "the"}));
  expect_same_after_json(*tokenizer, "the");
  expect_sound_everywhere(*tokenizer);
  file["pre_tokenizer"].erase("add_prefix_space");
  EXPECT_EQ(tokens(*files.load(file), "the"), (Tokens{kSpace + "the"}));
  files.folder.write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_EQ(tokens(*files.load_pair(), "the"), (Tokens{kSpace + "the"}));
}

TEST(ByteLevelBpe, TokenizerJsonHasItsOwnSettings) {
  const Files files;
  auto file = bpe_json();
  EXPECT_EQ(ids(*files.load(file), "the lower"), ids(*files.load_pair(), "the lower"));
  for (auto& merge : file["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  EXPECT_EQ(ids(*files.load(file), "the lower"), ids(*files.load_pair(), "the lower"));
  file["pre_tokenizer"]["use_regex"] = false;
  EXPECT_EQ(tokens(*files.load(file), "a aa"), (Tokens{"a", kSpace, "aa"}));
  file["model"]["vocab"]["x y"] = file["model"]["vocab"].size();
  file["model"]["vocab"]["lower"] = file["model"]["vocab"].size();
  EXPECT_EQ(tokens(*files.load(file), "lower"), (Tokens{"low", "er"}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokens(*files.load(file), "lower"), (Tokens{"lower"}));
  expect_same_after_json(*files.load(file), "lower");
}

TEST(ByteLevelBpe, BytesWithoutATokenAreUnknownOrLeftOut) {
  const Files files;
  json file = bpe_json();
  file["model"]["vocab"] = {{"<u>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}};
  file["model"]["merges"] = {"a b"};
  EXPECT_EQ(tokens(*files.load(file), "aXYb"), (Tokens{"ab"}));
  file["model"]["unk_token"] = "<u>";
  EXPECT_EQ(tokens(*files.load(file), "aXYb"), (Tokens{"a", "<u>", "<u>", "b"}));
  EXPECT_EQ(files.load(file)->unknown(), 0);
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(tokens(*files.load(file), "aXYb"), (Tokens{"a", "<u>", "b"}));
  EXPECT_EQ(sources(*files.load(file), "aXYb"), (Tokens{"a", "XY", "b"}));
  expect_same_after_json(*files.load(file), "aXYb");
  expect_sound_everywhere(*files.load(file));
}

TEST(ByteLevelBpe, SpecialTokensAreFoundInTheText) {
  const Files files;
  const auto tokenizer = files.load_pair();
  EXPECT_EQ(tokens(*tokenizer, "the</s>lo <mask> <s> the"),
            (Tokens{"the", "</s>", "lo", "<mask>", kSpace, "<s>", kSpace + "the"}));
  EXPECT_EQ(sources(*tokenizer, "lo <mask> the"), (Tokens{"lo", " <mask>", " the"}));
  files.folder.write("special_tokens_map.json",
                     R"({"mask_token": {"content": "<mask>", "lstrip": false, "rstrip": true}, "cls_token": "lower"})");
  EXPECT_EQ(tokens(*files.load_pair(), "lo <mask> the"), (Tokens{"lo", kSpace, "<mask>", "the"}));
}

TEST(ByteLevelBpe, EndOfTextIsATokenOfItsOwnOnlyWhereThereAreNoMarksOfSentences) {
  const TemporaryFolder folder;
  folder.write("merges.txt", "#version: 0.2\n");
  folder.write("vocab.json", R"({"a": 0, "<": 1, ">": 2, "<|endoftext|>": 3})");  // as in GPT-2
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "a<|endoftext|>"), (Tokens{"a", "<|endoftext|>"}));
  folder.write("vocab.json", R"({"a": 0, "<": 1, ">": 2, "<|endoftext|>": 3, "<s>": 4})");  // as in RoBERTa
  EXPECT_EQ(tokens(*Tokenizer::load(folder.path()), "a<s><|endoftext|>"), (Tokens{"a", "<s>", "<", ">"}));
}

// Tokens spell the text: byte for byte, whatever the text is.
RC_GTEST_PROP(ByteLevelBpe, IdsDecodeToTheText, ()) {
  static const Files files;
  static const auto tokenizer = files.load_pair();
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "the", " lower", "aa", "a", " ", "\n", "'ll", "7", "?", "\xC2\xA0", "\xC3\xA9", "\xCC\x81", "\xE6\xBC\xA2",
      "\xF0\x9F\x98\x80", "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB", "\xFF", "\xE6\xBC"));
  std::string text;
  for (const auto& piece : pieces) text += piece;
  std::string decoded;
  for (const auto& token : tokens(*tokenizer, text)) decoded += from_byte_alphabet(token).value();
  RC_ASSERT(decoded == valid_utf8(text));
  std::vector<int32_t> all;
  std::vector<Span> spans;
  tokenizer->tokenize(text, all, spans);
  size_t covered = 0;
  for (const Span span : spans) {
    RC_ASSERT(span.begin <= covered);
    covered = std::max(covered, span.end);
  }
  RC_ASSERT(covered == text.size());
}

// Words that are one token are found without merging; before a letter that nothing merges with they are merged.
RC_GTEST_PROP(ByteLevelBpe, WholeWordsHaveTheTokensOfTheirMerges, ()) {
  static const Files files;
  static const auto tokenizer = [] {
    auto file = bpe_json();
    file["pre_tokenizer"]["use_regex"] = false;
    return files.load(file);
  }();
  const auto word = *rc::gen::container<std::string>(rc::gen::element('t', 'h', 'e', 'l', 'o', 'w', 'r', 'a', ' '));
  auto expected = ids(*tokenizer, word);
  expected.push_back(tokenizer->find("~"));
  RC_ASSERT(ids(*tokenizer, word + "~") == expected);
}

// A word that is looked at anew after every merge would take days; so would one at every letter.
TEST(ByteLevelBpe, MillionLettersAreOneWord) {
  const Files files;
  const auto tokenizer = files.load_pair();
  for (const std::string piece : {"a", "the", "\xE6\xBC\xA2", "!", " ", "<", "<mask", " <mask> "}) {
    std::string text;
    while (text.size() < 1'000'000) text += piece;
    EXPECT_FALSE(ids(*tokenizer, text).empty());
  }
  EXPECT_EQ(ids(*tokenizer, std::string(1'000'000, 'a')).size(), 250'000u);
}

TEST(ByteLevelBpe, ManyThreadsMayUseOne) {
  const Files files;
  const auto tokenizer = files.load_pair();
  const auto expected = ids(*tokenizer, "the lower the <mask> aaaa");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 500; ++j) ASSERT_EQ(ids(*tokenizer, "the lower the <mask> aaaa"), expected);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(ByteLevelBpeFiles, BrokenVocabulariesAreNamed) {
  const Files files;
  const auto message = [&](const std::string& vocab) {
    const std::string text = error_message<io::Error>([&] { files.load_pair(vocab, merges_txt()); });
    const std::string path = files.folder / "vocab.json";
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    EXPECT_TRUE(is_valid_utf8(text)) << text;
    return text.substr(std::min(text.size(), path.size() + 2));
  };
  EXPECT_TRUE(message("").starts_with("is not valid JSON"));
  EXPECT_TRUE(message("{\"a\": 1").starts_with("is not valid JSON"));
  EXPECT_TRUE(message("{\"\xFF\": 0}").starts_with("is not valid JSON"));
  EXPECT_TRUE(message(std::string(200'000, '[')).starts_with("is not valid JSON"));
  for (const auto* text : {"[]", "1", "null", "\"a\""}) {
    EXPECT_EQ(message(text), "the vocabulary is no object of ids by token") << text;
  }
  for (const auto* text : {R"({"a": "0"})", R"({"a": 0.5})", R"({"a": null})", R"({"a": [0]})", R"({"a": 1e300})"}) {
    EXPECT_EQ(message(text), "token \"a\" has an id that is no whole number") << text;
  }
  EXPECT_EQ(message(R"({"a": 0, "b": 0})"), "token \"b\" has the id 0; expected each from 0 to 1 once");
  EXPECT_EQ(message(R"({"a": 0, "b": 2})"), "token \"b\" has the id 2; expected each from 0 to 1 once");
  EXPECT_EQ(message(R"({"a": -1})"), "token \"a\" has the id -1; expected each from 0 to 0 once");
  EXPECT_EQ(message(R"({"a": 18446744073709551615})").substr(0, 9), "token \"a\"");
  EXPECT_NE(message("{}").find("the unknown token is number 0 of 0"), std::string::npos);
}

TEST(ByteLevelBpeFiles, BrokenMergesAreNamedWithTheirLine) {
  const Files files;
  const auto message = [&](const std::string& merges) {
    return error_message<io::Error>([&] { files.load_pair(vocabulary().dump(), merges); });
  };
  const std::string path = files.folder / "merges.txt";
  EXPECT_EQ(message("#version: 0.2\nt h\nx yy\n"), path + ":3: merges \"yy\", which the vocabulary has not");
  EXPECT_EQ(message("x y\n"), path + ":1: merges \"xy\", which the vocabulary has not");
  for (const std::string line : {"", "th", "t h e", " t h", "t  h"}) {
    EXPECT_EQ(message("t h\n" + line + "\n"),
              path + ":2: has \"" + line + "\"; expected two tokens with a space between");
  }
  EXPECT_TRUE(message("t h\n" + std::string(100'000'000, 'x')).starts_with(path + ":2: "));
  std::filesystem::remove(path);
  EXPECT_TRUE(error_message<io::Error>([&] { Tokenizer::load(files.folder / "vocab.json"); }).starts_with(path + ": "));
}

TEST(ByteLevelBpeFiles, EmptyMergesLeaveBytes) {
  const Files files;
  EXPECT_EQ(tokens(*files.load_pair(vocabulary().dump(), ""), "the"), (Tokens{"t", "h", "e"}));
}

TEST(ByteLevelBpeFiles, TokenizerJsonOfAnotherKindIsNamed) {
  const Files files;
  const auto message = [&](const char* pointer, const json& value) {
    auto file = bpe_json();
    file[json::json_pointer(pointer)] = value;
    const std::string text = error_message<io::Error>([&] { files.load(file); });
    const std::string path = files.folder / "tokenizer.json";
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text.substr(std::min(text.size(), path.size() + 2));
  };
  EXPECT_EQ(message("/pre_tokenizer", nullptr), "has another pre_tokenizer; expected ByteLevel");
  EXPECT_EQ(message("/pre_tokenizer/type", "Metaspace"), "has another pre_tokenizer; expected ByteLevel");
  EXPECT_EQ(message("/normalizer", {{"type", "NFC"}}), "has a normalizer before its byte-level BPE; expected none");
  EXPECT_EQ(message("/model/dropout", 0.1), "has dropout of merges; expected none");
  EXPECT_EQ(message("/model/end_of_word_suffix", "</w>"),
            "has the setting end_of_word_suffix; expected byte-level BPE");
  EXPECT_EQ(message("/model/byte_fallback", true),
            "is BPE over letters with bytes to fall back to; expected byte-level BPE");
  EXPECT_EQ(message("/model/unk_token", "?!"), "the vocabulary has no \"?!\", its unknown token");
  EXPECT_EQ(message("/model/merges/1", "a"), "merge 1: has \"a\"; expected two tokens with a space between");
  EXPECT_EQ(message("/model/merges/1", {"q", "x"}), "merge 1: merges \"qx\", which the vocabulary has not");
  EXPECT_EQ(message("/model/merges/1", {"q"}), "merge 1 is neither a text nor two");
  EXPECT_NE(message("/model/vocab/a", 1).find("has the id 1; expected each from 0 to"), std::string::npos);
  for (const auto* pointer : {"/model", "/model/type", "/model/merges", "/model/unk_token", "/model/ignore_merges",
                              "/pre_tokenizer/type", "/pre_tokenizer/add_prefix_space", "/added_tokens"}) {
    EXPECT_TRUE(message(pointer, 7).starts_with("is no tokenizer.json: ")) << pointer;
  }
}

TEST(ByteLevelBpeFiles, StoredFormOfAnotherKindIsNamed) {
  const Files files;
  const auto message = [&](const char* pointer, const json& value) {
    auto stored = files.load_pair()->to_json();
    stored[json::json_pointer(pointer)] = value;
    return error_message<io::Error>([&] { Tokenizer::from_json(stored, "schema.json"); });
  };
  EXPECT_NE(message("/merges/0/0", 100'000).find("a merge has the token 100000"), std::string::npos);
  EXPECT_NE(message("/merges/0/0", -1).find("a merge has the token -1"), std::string::npos);
  EXPECT_NE(message("/added_tokens/0/id", 5).find("has the id 5; expected"), std::string::npos);
  for (const auto* pointer :
       {"/merges", "/merges/0", "/tokens", "/unknown", "/split_words", "/added_tokens/0/content"}) {
    EXPECT_TRUE(message(pointer, 7).starts_with("schema.json: is no tokenizer: ")) << pointer;
  }
}

}  // namespace
}  // namespace ramify::text
