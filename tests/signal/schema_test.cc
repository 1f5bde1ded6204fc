// What is inferred from records, and that it survives being stored.
#include "signal/schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::error_message;
using testing::schema_of;
using testing::SharedSchema;
using testing::TemporaryFolder;
using testing::text_of;
using Strings = std::vector<std::string>;

// "path kind" of all fields.
Strings kinds(const Schema& schema) {
  Strings result;
  for (const Field& field : schema.fields) result.push_back(field.path + " " + std::string(name_of(field.kind)));
  return result;
}

// The kind of x over records {"x": value}.
std::string kind_of_values(const Strings& values, const SchemaOptions& options = {}) {
  Strings records;
  for (const std::string& value : values) records.push_back("{\"x\": " + value + "}");
  const SharedSchema schema = schema_of(records, options);
  std::string result;
  for (const Field& field : schema->fields) {
    if (field.path == "x") result += (result.empty() ? "" : "+") + std::string(name_of(field.kind));
  }
  return result;
}

TEST(Inference, FindsFieldsInOrderOfAppearance) {
  EXPECT_EQ(
      kinds(*schema_of({R"({"b": {"c": [1, {"d": null}]}, "a": {"$set": [true]}})", R"({"a": null, "e": "a b c."})"})),
      (Strings{" object", "b object", "b.c array", "b.c[] object", "b.c[] number", "b.c[].d null", "a set",
               "a[] boolean", "e text"}));
}

TEST(Inference, KindOfScalars) {
  EXPECT_EQ(kind_of_values({"1", "2.5", "null"}), "number");
  EXPECT_EQ(kind_of_values({"true", "null"}), "boolean");
  EXPECT_EQ(kind_of_values({"null"}), "null");
  EXPECT_EQ(kind_of_values({R"("a")", R"("b")", R"("a")", R"("b")"}), "category");
  EXPECT_EQ(kind_of_values({R"("a")", R"("b")", R"("a")"}), "text");  // not repeated enough
  EXPECT_EQ(kind_of_values({"1", R"("a")", "1", R"("a")"}), "category");
  EXPECT_EQ(kind_of_values({"1", R"("a")", "2"}), "text");
  EXPECT_EQ(kind_of_values({"true", "1", "true", "1"}), "category");
  EXPECT_EQ(kind_of_values({"1", "[2]", R"({"a": 3})"}), "object+array+number");
  EXPECT_EQ(kind_of_values({R"({"$image": "a.png"})", R"({"$vector": [1]})"}), "image+vector");
}

TEST(Inference, CategoriesAreFewShortAndNoSentences) {
  Strings many, few;
  for (int i = 0; i < 65; ++i) {
    for (int copies = 0; copies < 3; ++copies) {
      many.push_back("\"v" + std::to_string(i) + "\"");
      few.push_back("\"v" + std::to_string(i % 64) + "\"");
    }
  }
  EXPECT_EQ(kind_of_values(many), "text");
  EXPECT_EQ(kind_of_values(few), "category");
  EXPECT_EQ(kind_of_values(few, {.max_categories = 10}), "text");
  const auto twice = [](const std::string& value) {
    return kind_of_values({"\"" + value + "\"", "\"" + value + "\""});
  };
  EXPECT_EQ(twice(std::string(64, 'x')), "category");
  EXPECT_EQ(twice(std::string(65, 'x')), "text");
  EXPECT_EQ(twice("Casual Shoes"), "category");
  EXPECT_EQ(twice("Acme Inc."), "category");
  EXPECT_EQ(twice("This is a sentence."), "text");
  EXPECT_EQ(twice("one two three four five six seven eight nine"), "text");
  EXPECT_EQ(twice("two\\nlines"), "text");
}

TEST(Inference, CategoryValuesByFallingCount) {
  const SharedSchema schema = schema_of({R"({"x": "b"})", R"({"x": "c"})", R"({"x": "c"})", R"({"x": "a"})",
                                         R"({"x": "a"})", R"({"x": "b"})", R"({"x": "c"})"});
  EXPECT_EQ(schema->fields[1].values, (Strings{"c", "a", "b"}));
}

TEST(Inference, WordsOfTextsAreTheVocabulary) {
  // categories, the target and left out fields have none in it; keys do
  const SharedSchema schema = schema_of({R"({"t": "alpha beta", "k": "gamma", "y": "delta", "i": "epsilon"})",
                                         R"({"t": "alpha zeta", "k": "gamma", "y": "delta", "i": "epsilon"})"},
                                        {.target = "y", .ignore = {"i"}});
  Strings words;
  for (int32_t id = 0; id < schema->tokenizer->size(); ++id) words.emplace_back(schema->tokenizer->token(id));
  std::sort(words.begin(), words.end());
  EXPECT_EQ(words, (Strings{"<unk>", "alpha", "beta", "k", "t", "zeta"}));
}

TEST(Inference, TextsThatLookedLikeCategoriesAreCounted) {
  Strings records;
  for (int i = 0; i < 70; ++i) records.push_back("{\"t\": \"word" + std::to_string(i) + "\"}");
  const SharedSchema schema = schema_of(records);
  EXPECT_EQ(schema->tokenizer->size(), 72);  // with the unknown one and t
}

TEST(Inference, NumbersThatSpreadOverMagnitudesAreLogarithmic) {
  const auto field = [](const Strings& numbers) {
    Strings records;
    for (const std::string& number : numbers) records.push_back("{\"x\": " + number + "}");
    return schema_of(records)->fields[1];
  };
  EXPECT_FALSE(field({"1990", "2000", "2010"}).logarithmic);
  EXPECT_FALSE(field({"-1", "1000", "1000000"}).logarithmic);
  const Field sizes = field({"0", "10", "1000", "1000000"});
  EXPECT_TRUE(sizes.logarithmic);
  EXPECT_EQ(sizes.min, 0);
  EXPECT_EQ(sizes.max, 1e6);
  EXPECT_NEAR(sizes.normalised(10) + sizes.normalised(1000), 2 * sizes.normalised(std::sqrt(11.0 * 1001) - 1), 1e-5);
  const Field huge = field({"-1e308", "1e308", "1e308"});
  EXPECT_TRUE(std::isfinite(huge.mean) && std::isfinite(huge.deviation));
  EXPECT_TRUE(std::isfinite(huge.normalised(1e308)));
}

TEST(Inference, FieldsHaveALimit) {
  std::string record = "{";
  for (int i = 0; i < 50; ++i) record += (i == 0 ? "\"k" : ", \"k") + std::to_string(i) + "\": " + std::to_string(i);
  const SharedSchema schema = schema_of({record + "}"}, {.max_fields = 10});
  EXPECT_EQ(schema->fields.size(), 10);
  EXPECT_EQ(text_of(compile(schema, R"({"k1": 1, "k40": 2})"), schema), "(k1=#2:0 ?=#0:1.44)");
}

TEST(Inference, VectorsOfOneFieldHaveOneWidth) {
  EXPECT_EQ(error_message<BadRecord>([] {
              schema_of({R"({"v": {"$vector": [1, 2]}})", R"({"v": {"$vector": [1]}})"});
            }),
            "field v is a vector of 1 numbers, those before had 2");
  EXPECT_EQ(error_message<BadRecord>([] { schema_of({R"({"v": {"$vector": []}})"}); }),
            "field v is a vector of 0 numbers");
}

TEST(Inference, WhatIsAskedForMustBeThere) {
  const auto message = [](const SchemaOptions& options) {
    return error_message<io::Error>([&] { schema_of({R"({"a": 1})"}, options); });
  };
  EXPECT_EQ(message({.fields = {"b"}}), "no record has the field b, which --fields names");
  EXPECT_EQ(message({.ignore = {"a.b"}}), "no record has the field a.b, which --ignore names");
  EXPECT_EQ(message({.declared = {{"b", {Kind::image}}}}), "no record has the field b, which the schema file names");
  EXPECT_EQ(error_message<io::Error>([] { schema_of({}); }), "no records");
}

TEST(Schema, ModalitiesAreWhatTheDataHas) {
  const SharedSchema plain = schema_of({R"({"t": "some text"})"});
  EXPECT_EQ(plain->modalities(), (std::vector<Modality>{{"token", Feature::ids, 4}, {"category", Feature::ids, 5}}));
  const SharedSchema all = schema_of(
      {R"({"n": 1, "m": [2], "b": true, "i": {"$image": "x"}, "v": {"$vector": [1, 2]}, "w": {"$vector": [1]}, "z": null})"},
      {.image = {.patch = 4}});
  EXPECT_EQ(all->modalities(), (std::vector<Modality>{{"token", Feature::ids, 8},
                                                      {"category", Feature::ids, kGenericCategories + 3},
                                                      {"number", Feature::numbers, 3},
                                                      {"patch", Feature::dense, 48},
                                                      {"vector:1", Feature::dense, 1},
                                                      {"vector:2", Feature::dense, 2}}));
  EXPECT_EQ(all->category_names(),
            (Strings{"unknown", "empty", "null", "false", "true", "b=false", "b=true", "z=null"}));
}

TEST(Schema, SurvivesBeingStored) {
  const Strings records = {
      R"({"t": "Some text. More.", "n": 1.5, "k": "a", "o": {"p.q": [true]}, "v": {"$vector": [1]}, "g": {"$graph": {"nodes": ["x y z u."], "edges": []}}, "y": "c", "": 1})",
      R"({"t": "", "n": -2, "k": "a", "o": null, "skip": 1, "y": "d"})"};
  SchemaOptions options = {.target = "y", .ignore = {"skip"}, .image = {.patch = 8}, .max_leaves = 99};
  const SharedSchema schema = schema_of(records, options);
  const nlohmann::json stored = nlohmann::json::parse(schema->to_json().dump());
  const auto read = std::make_shared<const Schema>(Schema::from_json(stored, "schema.json"));
  EXPECT_EQ(read->to_json(), stored);
  EXPECT_EQ(read->modalities(), schema->modalities());
  EXPECT_EQ(read->key_tokens, schema->key_tokens);
  for (const std::string& record : records) {
    EXPECT_EQ(text_of(compile(read, record), read), text_of(compile(schema, record), schema));
  }
}

TEST(Schema, BrokenOnesAreRefused) {
  const nlohmann::json good = schema_of({R"({"n": 1, "v": {"$vector": [1]}, "y": "a"})"}, {.target = "y"})->to_json();
  const auto message = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json broken = good;
    broken[nlohmann::json::json_pointer(pointer)] = value;
    return error_message<io::Error>([&] { Schema::from_json(broken, "s.json"); });
  };
  EXPECT_EQ(message("/version", 2), "s.json: not a schema: version 2, expected 1");
  EXPECT_EQ(message("/fields/1/deviation", 0), "s.json: not a schema: the deviation of n is 0");
  EXPECT_EQ(message("/fields/2/width", -1), "s.json: not a schema: the width of v is -1");
  EXPECT_NE(message("/fields/1/kind", "thing").find("'thing' is no kind of field; expected one of object"),
            std::string::npos);
  for (const char* pointer :
       {"/fields", "/keys", "/tokenizer", "/target", "/image", "/max_leaves", "/fields/0/path", "/only"}) {
    EXPECT_EQ(message(pointer, 3.5 == 0 ? "" : nlohmann::json({{"x", nullptr}})).substr(0, 7), "s.json:") << pointer;
  }
  EXPECT_EQ(error_message<io::Error>([] { Schema::from_json(nlohmann::json::array(), "s.json"); }).substr(0, 7),
            "s.json:");
}

TEST(Schema, KeysAreReadAsWords) {
  EXPECT_EQ(key_words("releaseDate"), "release Date");
  EXPECT_EQ(key_words("release_date"), "release date");
  EXPECT_EQ(key_words("release-date"), "release date");
  EXPECT_EQ(key_words("URL"), "URL");
}

TEST(SchemaFile, DeclaresFields) {
  const TemporaryFolder folder;
  SchemaOptions options;
  read_schema_file(
      folder.write("s.json", R"({"fields": {"a": "image", "b.c": {"kind": "text", "levels": ["sentence", "token"]}},
                                              "image": {"patch": 8, "width": 64, "height": 80}})"),
      options);
  EXPECT_EQ(options.declared.at("a").kind, Kind::image);
  EXPECT_EQ(options.declared.at("b.c").levels, (std::vector<TextLevel>{TextLevel::sentence, TextLevel::token}));
  EXPECT_EQ(options.image.patch, 8);
  EXPECT_EQ(options.image.height, 80);
}

TEST(SchemaFile, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    const std::string path = folder.write("s.json", text);
    SchemaOptions options;
    const std::string error = error_message<io::Error>([&] { read_schema_file(path, options); });
    EXPECT_EQ(error.substr(0, path.size()), path) << error;
    return error.substr(std::min(error.size(), path.size() + 2));
  };
  EXPECT_EQ(message(R"({"fields": {"a": "picture"}})").substr(0, 42), "field a: 'picture' is no kind of field; ex");
  EXPECT_EQ(message(R"({"feilds": {}})"), "'feilds' is not known; expected fields or image");
  EXPECT_EQ(message(R"({"fields": {"a": {"kinds": "text"}}})"),
            "field a: 'kinds' is not known here; expected kind or levels");
  EXPECT_EQ(message(R"({"image": {"patch": 0}})"), "image.patch is 0; expected 1 to 16384");
  EXPECT_EQ(message(R"({"image": {"path": 1}})"),
            "image.path is not known; expected patch, longest_side, width, height");
  EXPECT_EQ(message(R"({"fields": {"a": {"kind": "image", "levels": ["token"]}}})"), "field a: levels are for texts");
  for (const std::string text :
       {"", "[]", "{\"fields\": 3}", "{\"fields\": {\"a\": 1}}", "{\"fields\": {\"a\": {\"levels\": 3}}}",
        "{\"image\": []}", "{\"image\": {\"patch\": \"x\"}}", "{\"fields\": {\"a..b\": \"text\"}}"}) {
    EXPECT_FALSE(message(text).empty()) << text;
  }
}

}  // namespace
}  // namespace ramify::signal
