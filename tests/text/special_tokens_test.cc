#include "text/special_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "text/tokenizing.h"

namespace ramify::text {
namespace {

using nlohmann::json;
using testing::error_message;
using testing::TemporaryFolder;
using Ids = std::vector<int32_t>;

const std::vector<std::string> kTokens = {"<unk>", "<s>", "</s>", "<pad>", "[CLS]", "[SEP]", "[PAD]", "a"};
const Ids kFirst = {10, 11, 12};
const Ids kSecond = {20, 21};

SpecialTokens load(const TemporaryFolder& folder) {
  return SpecialTokens::load(folder.path(), *Tokenizer::word(Vocabulary(kTokens)));
}

SpecialTokens load(const json& processor) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", json{{"post_processor", processor}}.dump());
  return load(folder);
}

json template_processing() {
  const auto token = [](const char* name, int type) {
    return json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) { return json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", {token("[CLS]", 0), text("A", 0), token("[SEP]", 0)}},
          {"pair", {token("[CLS]", 0), text("A", 0), token("[SEP]", 0), text("B", 1), token("[SEP]", 1)}},
          {"special_tokens", {{"[CLS]", {{"id", "[CLS]"}, {"ids", {4}}}}, {"[SEP]", {{"id", "[SEP]"}, {"ids", {5}}}}}}};
}

void expect_bert(const SpecialTokens& special) {
  EXPECT_EQ(special.wrap(kFirst).ids, (Ids{4, 10, 11, 12, 5}));
  EXPECT_EQ(special.wrap(kFirst).types, (Ids{0, 0, 0, 0, 0}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).ids, (Ids{4, 10, 11, 12, 5, 20, 21, 5}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).types, (Ids{0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).first, (Span{1, 4}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).second, (Span{5, 7}));
}

void expect_roberta(const SpecialTokens& special) {
  EXPECT_EQ(special.wrap(kFirst).ids, (Ids{1, 10, 11, 12, 2}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).ids, (Ids{1, 10, 11, 12, 2, 2, 20, 21, 2}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).types, Ids(9, 0));
}

void expect_none(const SpecialTokens& special) {
  EXPECT_EQ(special.wrap(kFirst).ids, kFirst);
  EXPECT_EQ(special.wrap(kFirst, kSecond).ids, (Ids{10, 11, 12, 20, 21}));
  EXPECT_EQ(special.wrap(kFirst, kSecond).types, (Ids{0, 0, 0, 1, 1}));
}

TEST(SpecialTokens, PostProcessorOfTokenizerJsonIsUsed) {
  expect_bert(load(template_processing()));
  expect_bert(load({{"type", "BertProcessing"}, {"sep", {"[SEP]", 5}}, {"cls", {"[CLS]", 4}}}));
  const json roberta = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 1}}};
  expect_roberta(load(roberta));
  expect_none(load({{"type", "ByteLevel"}, {"trim_offsets", false}}));
  expect_roberta(load({{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, roberta}}}));
  auto several = template_processing();
  several["special_tokens"]["[CLS]"]["ids"] = {4, 7};
  EXPECT_EQ(load(several).wrap(kFirst).ids, (Ids{4, 7, 10, 11, 12, 5}));
}

TEST(SpecialTokens, WithoutATokenizerJsonTheModelsConventionHolds) {
  const auto load_type = [](const char* type) {
    const TemporaryFolder folder;
    folder.write("config.json", json{{"model_type", type}}.dump());
    return load(folder);
  };
  expect_bert(load_type("bert"));
  expect_roberta(load_type("roberta"));
  expect_none(load_type("gpt2"));
  EXPECT_EQ(load_type("llama").wrap(kFirst).ids, (Ids{1, 10, 11, 12}));
  EXPECT_EQ(load_type("llama").wrap(kFirst, kSecond).ids, (Ids{1, 10, 11, 12, 1, 20, 21}));
  EXPECT_EQ(load_type("llama").wrap(kFirst, kSecond).types, (Ids{0, 0, 0, 0, 1, 1, 1}));

  const TemporaryFolder folder;
  expect_none(load(folder));
  folder.write("special_tokens_map.json", R"({"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}})");
  expect_bert(load(folder));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer", "cls_token": "<s>",
                                            "sep_token": "</s>"})");
  expect_roberta(load(folder));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false,
                                            "add_eos_token": true})");
  EXPECT_EQ(load(folder).wrap(kFirst).ids, (Ids{10, 11, 12, 2}));
  folder.write("tokenizer.json", R"({"post_processor": null})");
  EXPECT_EQ(load(folder).wrap(kFirst).ids, (Ids{10, 11, 12, 2}));
}

TEST(SpecialTokens, PaddingIsWhatTheFolderNames) {
  const TemporaryFolder folder;
  EXPECT_EQ(load(folder).padding(), 6);  // [PAD], by convention
  EXPECT_EQ(SpecialTokens::load(folder.path(), *Tokenizer::word(Vocabulary({"a"}))).padding(), std::nullopt);
  folder.write("config.json", R"({"pad_token_id": 2})");
  EXPECT_EQ(load(folder).padding(), 2);
  folder.write("tokenizer.json", R"({"padding": {"pad_id": 7}, "post_processor": null})");
  EXPECT_EQ(load(folder).padding(), 7);
  folder.write("special_tokens_map.json", R"({"pad_token": "<pad>"})");
  EXPECT_EQ(load(folder).padding(), 3);
}

TEST(SpecialTokens, BoundsAreWhatTheFolderNames) {
  using Bounds = SpecialTokens::Bounds;
  const TemporaryFolder folder;
  EXPECT_EQ(load(folder).bounds(), (Bounds{1, {2}}));  // <s> and </s>, by convention
  const auto bounds_of = [&](std::vector<std::string> tokens) {
    return SpecialTokens::load(folder.path(), *Tokenizer::word(Vocabulary(tokens))).bounds();
  };
  EXPECT_EQ(bounds_of({"a"}), Bounds{});
  EXPECT_EQ(bounds_of({"a", "<|endoftext|>"}), (Bounds{1, {1}}));
  folder.write("special_tokens_map.json", R"({"bos_token": "[CLS]", "eos_token": {"content": "[SEP]"}})");
  EXPECT_EQ(load(folder).bounds(), (Bounds{4, {5}}));
  folder.write("config.json", R"({"bos_token_id": 7, "eos_token_id": -1})");
  EXPECT_EQ(load(folder).bounds(), (Bounds{7, {5}}));
  folder.write("generation_config.json", R"({"bos_token_id": null, "eos_token_id": [3, 1000]})");
  EXPECT_EQ(load(folder).bounds(), (Bounds{7, {3, 1000}}));
}

TEST(SpecialTokens, LongTextsAreCutAtTheirEnd) {
  const auto special = load(template_processing());
  EXPECT_EQ(special.wrap(kFirst, 5).ids, (Ids{4, 10, 11, 12, 5}));
  EXPECT_EQ(special.wrap(kFirst, 4).ids, (Ids{4, 10, 11, 5}));
  EXPECT_EQ(special.wrap(kFirst, 2).ids, (Ids{4, 5}));
  EXPECT_EQ(error_message([&] { special.wrap(kFirst, 1); }),
            "special tokens: a length of 1 was asked for; expected at least 2, as many as the special tokens");
  EXPECT_THROW(special.wrap(kFirst, -1), std::invalid_argument);
  EXPECT_THROW(special.wrap(kFirst, kSecond, 2), std::invalid_argument);
}

TEST(SpecialTokens, TheLongerOfTwoIsCutFirst) {
  const auto lengths = [](size_t first, size_t second, int64_t room) {
    const auto input = SpecialTokens().wrap(Ids(first, 1), Ids(second, 2), room);
    return std::pair(input.first.end - input.first.begin, input.second.end - input.second.begin);
  };
  using Pair = std::pair<size_t, size_t>;
  EXPECT_EQ(lengths(5, 3, 8), Pair(5, 3));
  EXPECT_EQ(lengths(5, 3, 7), Pair(4, 3));
  EXPECT_EQ(lengths(3, 5, 7), Pair(3, 4));
  EXPECT_EQ(lengths(10, 2, 4), Pair(2, 2));
  EXPECT_EQ(lengths(10, 10, 5), Pair(2, 3));
  EXPECT_EQ(lengths(11, 10, 5), Pair(3, 2));
  EXPECT_EQ(lengths(10, 0, 5), Pair(5, 0));
  EXPECT_EQ(lengths(4, 4, 0), Pair(0, 0));
}

RC_GTEST_PROP(SpecialTokens, AsMuchIsKeptAsFits, ()) {
  const auto first = *rc::gen::inRange<size_t>(0, 20);
  const auto second = *rc::gen::inRange<size_t>(0, 20);
  const auto length = *rc::gen::inRange<size_t>(3, 50);
  static const auto special = load(template_processing());
  const auto input = special.wrap(Ids(first, 1), Ids(second, 2), static_cast<int64_t>(length));
  RC_ASSERT(input.ids.size() == std::min(length, first + second + 3));
  RC_ASSERT(input.types.size() == input.ids.size());
  const size_t kept_first = input.first.end - input.first.begin;
  const size_t kept_second = input.second.end - input.second.begin;
  RC_ASSERT(kept_first + kept_second + 3 == input.ids.size());
  RC_ASSERT(kept_first == first || kept_first + 1 >= kept_second);
  RC_ASSERT(kept_second == second || kept_second + 1 >= kept_first);
}

TEST(SpecialTokens, TemplatesWithoutTheirTextsAreRefused) {
  using Part = SpecialTokens::Part;
  EXPECT_THROW(SpecialTokens({}, {{Part::first}, {Part::second}}, {}), std::invalid_argument);
  EXPECT_THROW(SpecialTokens({{Part::first}}, {{Part::first}}, {}), std::invalid_argument);
  EXPECT_THROW(SpecialTokens({{Part::first}, {Part::first}}, {{Part::first}, {Part::second}}, {}),
               std::invalid_argument);
}

TEST(SpecialTokens, FilesOfAnotherKindAreNamed) {
  const TemporaryFolder folder;
  const std::string path = folder / "tokenizer.json";
  const auto message = [&](const char* pointer, const json& value) {
    json file = {{"post_processor", template_processing()}};
    file[json::json_pointer(pointer)] = value;
    folder.write("tokenizer.json", file.dump());
    const std::string text = error_message<io::Error>([&] { load(folder); });
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text.substr(std::min(text.size(), path.size() + 2));
  };
  EXPECT_EQ(message("/post_processor/type", "Other"),
            "has the post_processor \"Other\"; expected TemplateProcessing, BertProcessing or RobertaProcessing");
  EXPECT_EQ(message("/post_processor/special_tokens/[CLS]/ids/0", 8), "the special token 8 is none of the 8 tokens");
  EXPECT_EQ(message("/post_processor/special_tokens/[CLS]/ids/0", -1), "the special token -1 is none of the 8 tokens");
  EXPECT_EQ(message("/post_processor/single/0/SpecialToken/type_id", 2), "a template has the type 2; expected 0 or 1");
  EXPECT_EQ(message("/post_processor/single", json::array()),
            "special tokens: the template of one text must have it once, and no second one");
  EXPECT_EQ(message("/padding", {{"pad_id", 9}}), "the special token 9 is none of the 8 tokens");
  for (const auto* pointer : {"/post_processor", "/post_processor/type", "/post_processor/single",
                              "/post_processor/single/0", "/post_processor/special_tokens", "/padding"}) {
    EXPECT_TRUE(message(pointer, 7).starts_with("is no tokenizer.json: ")) << pointer;
  }
  folder.write("tokenizer.json", "{");
  EXPECT_TRUE(error_message<io::Error>([&] { load(folder); }).starts_with(path + ": is not valid JSON"));
}

TEST(SpecialTokens, SettingsOfAnotherKindAreNamed) {
  for (const auto* name : {"config.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const TemporaryFolder folder;
    const auto message = [&](const char* text) {
      folder.write(name, text);
      return error_message<io::Error>([&] { load(folder); });
    };
    EXPECT_TRUE(message("nonsense").starts_with(folder / name + ": is not valid JSON")) << name;
    EXPECT_EQ(message("[]"), folder / name + ": is no object of settings");
    EXPECT_TRUE(message(R"({"model_type": 1, "tokenizer_class": 1, "cls_token": 1})")
                    .starts_with(folder / name + ": is no tokenizer configuration"))
        << name;
  }
  const TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "bert"})");
  folder.write("tokenizer_config.json", R"({"cls_token": "[START]"})");
  EXPECT_EQ(error_message<io::Error>([&] { load(folder); }),
            folder.path() + ": the tokenizer has no \"[START]\", the cls_token");
}

}  // namespace
}  // namespace ramify::text
