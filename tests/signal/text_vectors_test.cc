// Texts whose leaves are vectors that someone else computes: the shape of the tree, and what is computed at all.
#include "signal/text_vectors.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "generators/error_message.h"
#include "signal/compiler.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::error_message;
using testing::schema_of;
using testing::SharedSchema;
using testing::text_of;

// Tokens are words, except "~"; a row is where the word begins in what was asked for, and how many bytes it has. With
// spaces, a word begins with the space before it.
class FakeVectors final : public TextVectors {
 public:
  explicit FakeVectors(LeafLevel level, bool with_spaces = false) : level_(level), with_spaces_(with_spaces) {}

  int64_t width() const override { return 2; }

  void compute(std::string_view text, int64_t most, TextRows& rows) const override {
    rows = {};
    for (size_t begin = 0; (begin = text.find_first_not_of(" \n", begin)) != text.npos;) {
      const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
      const size_t from = with_spaces_ && begin > 0 ? begin - 1 : begin;
      if (text.substr(begin, end - begin) != "~") rows.spans.push_back({from, end});
      begin = end;
    }
    if (level_ != LeafLevel::token && !rows.spans.empty()) rows.spans = {{0, text.size()}};
    rows.was_cut = static_cast<int64_t>(rows.spans.size()) > most;
    if (rows.was_cut) rows.spans.resize(static_cast<size_t>(most));
    for (const text::Span& span : rows.spans) {
      rows.values.push_back(static_cast<float>(span.begin));
      rows.values.push_back(static_cast<float>(span.end - span.begin));
    }
    ++calls;
  }

  mutable int calls = 0;

 private:
  LeafLevel level_;
  bool with_spaces_;
};

SchemaOptions encoded(LeafLevel level, const char* levels = "paragraph,sentence,token") {
  return {.text_levels = parse_text_levels(levels),
          .leaf_encoding = LeafEncoding{.model = "/m", .level = level, .width = 2, .sha256 = "5e"}};
}

struct Outcome {
  std::string text;
  bool truncated = false;
  int calls = 0;
};

Outcome outcome_of(const std::string& record, LeafLevel level, SchemaOptions options, bool with_spaces = false) {
  const SharedSchema schema = schema_of({record, R"({"t": "another one", "u": "third text"})"}, std::move(options));
  const auto vectors = std::make_shared<FakeVectors>(level, with_spaces);
  const Signal signal = compile(schema, record, {.text_vectors = vectors});
  return {text_of(signal, schema), signal.truncated, vectors->calls};
}

std::string tree(const std::string& record, LeafLevel level, const char* levels = "paragraph,sentence,token") {
  return outcome_of(record, level, encoded(level, levels)).text;
}

const std::string kRecord = R"({"t": "Ab cd. Efg.\n\nHi. ~ Jk lm."})";

TEST(TextVectors, ASentenceIsALeafUnderItsParagraph) {
  constexpr auto kLevel = LeafLevel::sentence;
  const std::string with_paragraphs = "(t=((v[0 6] v[0 4]) (v[0 3] v[0 8])))";
  EXPECT_EQ(tree(kRecord, kLevel), with_paragraphs);
  EXPECT_EQ(tree(kRecord, kLevel, "paragraph,token"), with_paragraphs);
  EXPECT_EQ(tree(kRecord, kLevel, "sentence,token"), "(t=(v[0 6] v[0 4] v[0 3] v[0 8]))");
  EXPECT_EQ(tree(kRecord, kLevel, "token"), "(t=(v[0 6] v[0 4] v[0 3] v[0 8]))");
}

TEST(TextVectors, AParagraphIsALeaf) {
  EXPECT_EQ(tree(kRecord, LeafLevel::paragraph), "(t=(v[0 11] v[0 12]))");
  EXPECT_EQ(tree(kRecord, LeafLevel::paragraph, "token"), "(t=(v[0 11] v[0 12]))");
}

TEST(TextVectors, TokensOfTheWholeTextAreUnderTheSentenceInWhichTheyBegin) {
  constexpr auto kLevel = LeafLevel::token;
  EXPECT_EQ(tree(kRecord, kLevel), "(t=(((v[0 2] v[3 3]) (v[7 4])) ((v[13 3]) (v[19 2] v[22 3]))))");
  EXPECT_EQ(tree(kRecord, kLevel, "paragraph,token"), "(t=((v[0 2] v[3 3] v[7 4]) (v[13 3] v[19 2] v[22 3])))");
  EXPECT_EQ(tree(kRecord, kLevel, "sentence,token"), "(t=((v[0 2] v[3 3]) (v[7 4]) (v[13 3]) (v[19 2] v[22 3])))");
  EXPECT_EQ(tree(kRecord, kLevel, "token"), "(t=(v[0 2] v[3 3] v[7 4] v[13 3] v[19 2] v[22 3]))");
  EXPECT_EQ(outcome_of(kRecord, kLevel, encoded(kLevel)).calls, 1);
}

TEST(TextVectors, TheSpaceBeforeAWordBelongsToNoSentence) {
  EXPECT_EQ(outcome_of(R"({"t": "Ab. Cd."})", LeafLevel::token, encoded(LeafLevel::token), true).text,
            "(t=(((v[0 3]) (v[3 4]))))");
}

TEST(TextVectors, PlacesCountFromTheFirstOfEachParent) {
  for (const LeafLevel level : {LeafLevel::sentence, LeafLevel::token}) {
    const SharedSchema schema = schema_of({kRecord, R"({"t": "another one"})"}, encoded(level));
    const auto vectors = std::make_shared<FakeVectors>(level);
    const Signal signal = compile(schema, kRecord, {.text_vectors = vectors});
    // the root, the text, two paragraphs, two sentences in each
    const std::vector<int32_t> places(signal.place.begin() + 2, signal.place.begin() + 8);
    EXPECT_EQ(places, (std::vector<int32_t>{0, 1, 0, 1, 0, 1})) << name_of(level);
  }
}

TEST(TextVectors, WhatHasNoTokensIsEmpty) {
  for (const LeafLevel level : {LeafLevel::token, LeafLevel::sentence, LeafLevel::paragraph}) {
    EXPECT_EQ(tree(R"({"t": "", "u": "x"})", level).substr(0, 14), "(t=<t=(empty)>") << name_of(level);
    EXPECT_EQ(tree(R"({"t": " \n\n ~ ", "u": "x"})", level).substr(0, 11), "(t=<empty> ") << name_of(level);
  }
}

TEST(TextVectors, NothingIsComputedThatIsCutOff) {
  const auto cut = [](LeafLevel level, int64_t most) {
    SchemaOptions options = encoded(level);
    options.max_leaves = most;
    return outcome_of(R"({"t": "Ab cd. Efg.\n\nHi.", "u": "Jk."})", level, options);
  };
  const Outcome sentences = cut(LeafLevel::sentence, 2);
  EXPECT_EQ(sentences.text, "(t=((v[0 6] v[0 4])))");
  EXPECT_TRUE(sentences.truncated);
  EXPECT_EQ(sentences.calls, 2);
  const Outcome tokens = cut(LeafLevel::token, 2);
  EXPECT_EQ(tokens.text, "(t=(((v[0 2] v[3 3]))))");
  EXPECT_TRUE(tokens.truncated);
  EXPECT_EQ(tokens.calls, 1);
  EXPECT_FALSE(cut(LeafLevel::sentence, 4).truncated);
  EXPECT_FALSE(cut(LeafLevel::token, 5).truncated);
}

TEST(TextVectors, TextsUnderUnknownKeysHaveThemToo) {
  const SharedSchema schema = schema_of({kRecord, R"({"t": "another one"})"}, encoded(LeafLevel::sentence));
  const auto vectors = std::make_shared<FakeVectors>(LeafLevel::sentence);
  EXPECT_EQ(text_of(compile(schema, R"({"new": "Ab."})", {.text_vectors = vectors}), schema), "(?=((v[0 3])))");
}

TEST(TextVectors, LabelsSayWhatALeafStandsFor) {
  for (const LeafLevel level : {LeafLevel::token, LeafLevel::sentence}) {
    const SharedSchema schema = schema_of({kRecord, R"({"t": "another one"})"}, encoded(level));
    const auto vectors = std::make_shared<FakeVectors>(level);
    const Signal signal = compile(schema, kRecord, {.labels = Labels::all, .text_vectors = vectors});
    const NodeLabel& last = signal.labels.back();
    EXPECT_EQ(last.kind, name_of(level));
    EXPECT_EQ(last.label, "1");
    EXPECT_EQ(last.text, level == LeafLevel::token ? "lm." : "~ Jk lm.");
  }
}

TEST(TextVectors, TheSchemaKeepsWhereTheyComeFromAndNoVocabulary) {
  const SharedSchema schema = schema_of({kRecord, R"({"t": "another one"})"}, encoded(LeafLevel::sentence));
  EXPECT_EQ(schema->modalities().back(), (Modality{"text", Feature::dense, 2}));
  EXPECT_EQ(schema->tokenizer->find("another"), -1);
  EXPECT_GE(schema->tokenizer->find("t"), 0);  // keys can still be words
  EXPECT_EQ(Schema::from_json(schema->to_json(), "s").leaf_encoding, schema->leaf_encoding);
  const SharedSchema table = schema_of({kRecord, R"({"t": "another one"})"}, encoded(LeafLevel::table));
  EXPECT_FALSE(table->has_text_vectors());
}

TEST(TextVectors, ACompilerNeedsThoseOfTheSchema) {
  SchemaOptions options = encoded(LeafLevel::sentence);
  const SharedSchema schema = schema_of({kRecord, R"({"t": "another one"})"}, options);
  EXPECT_EQ(error_message<std::invalid_argument>([&] { compile(schema, kRecord); }),
            "compiler: the schema has text vectors of width 2, those given have 0");
}

}  // namespace
}  // namespace ramify::signal
