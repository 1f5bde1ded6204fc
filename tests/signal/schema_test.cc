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
#include "signal/similar_names.h"

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
            "field v is a vector of 1 number, those before had 2");
  EXPECT_EQ(error_message<BadRecord>([] { schema_of({R"({"v": {"$vector": []}})"}); }),
            "field v is a vector of 0 numbers");
}

TEST(Inference, BadRecordsAreNotCountedInPart) {
  SchemaInference inference({.target = "label"});
  inference.add(R"({"text": "a b", "label": "x"})");
  inference.add(R"({"text": "a c", "label": "y"})");
  EXPECT_THROW(inference.add(R"({"text": {"surprise": 1}, "label": "z", "last": {"$set": 3}})"), BadRecord);
  EXPECT_THROW(inference.add(R"({"text": {"surprise": 1}, "label": null})"), BadRecord);
  const Schema schema = inference.finish();
  EXPECT_EQ(kinds(schema), (Strings{" object", "text text"}));
  EXPECT_EQ(schema.target.classes, (Strings{"x", "y"}));
}

TEST(Inference, GraphsBesideArraysAreKnown) {
  const SharedSchema schema =
      schema_of({R"({"g": [1, 2]})", R"({"g": {"$graph": {"nodes": [1, 2], "edges": [[0, 1]]}}})"});
  EXPECT_EQ(schema->fields[1].kind, Kind::array);
  EXPECT_EQ(schema->fields[1].graphs, 1);
  EXPECT_EQ(Schema::from_json(schema->to_json(), "s.json").fields[1].graphs, 1);
}

TEST(Inference, WhatIsAskedForMustBeThere) {
  const auto message = [](const SchemaOptions& options) {
    return error_message<io::Error>([&] { schema_of({R"({"a": 1})"}, options); });
  };
  EXPECT_EQ(message({.fields = {"b"}}), "no record has the field b, which --fields names");
  EXPECT_EQ(error_message<io::Error>([] { schema_of({R"({"title": 1})"}, {.ignore = {"titel"}}); }),
            "no record has the field titel, which --ignore names; did you mean title?");
  EXPECT_EQ(message({.ignore = {"a.b"}}), "no record has the field a.b, which --ignore names");
  EXPECT_EQ(message({.declared = {{"b", {Kind::image}}}}), "no record has the field b, which the schema file names");
  EXPECT_EQ(error_message<io::Error>([] { schema_of({}); }), "no records");
}

// The notes of records {"x": value}, read from a.jsonl.
Strings notes_of(const Strings& values, SchemaOptions options = {}) {
  SchemaInference inference(std::move(options));
  int64_t line = 0;
  for (const std::string& value : values) inference.add("{\"x\": " + value + "}", {"a.jsonl", ++line});
  return inference.finish().notes;
}

Strings numbered(int count, const std::string& before, const std::string& after) {
  Strings values;
  for (int i = 0; i < count; ++i) values.push_back(before + std::to_string(i) + after);
  return values;
}

TEST(Notes, FewStringsAmongNumbers) {
  Strings values = numbered(399, "", ".5");
  values.insert(values.begin() + 17, R"("N/A")");
  EXPECT_EQ(notes_of(values), Strings{"x: 399 numbers, 1 string (a.jsonl:18): read as text; --schema can say number"});
  EXPECT_EQ(notes_of(values, {.declared = {{"x", {Kind::text}}}}), Strings{});
  EXPECT_EQ(notes_of({"true", "true", R"("no")", "2", R"("no")", "true", "false", "false"}),
            Strings{"x: 5 booleans, 2 strings, 1 number (a.jsonl:4): read as category; --schema can say boolean"});
  EXPECT_EQ(notes_of({R"("a b")", R"("c d")", "3"}), Strings{});  // strings prevail
}

TEST(Notes, NamesOfImageFiles) {
  EXPECT_EQ(notes_of({R"("a.png")", R"("b/c.JPG")", R"("d.jpeg")"}),
            Strings{"x: these look like image files; --schema can say image"});
  EXPECT_EQ(notes_of(numbered(200, "\"", ".png\"")).size(), 1);
  EXPECT_EQ(notes_of({R"("a.png")", R"("b")", R"("c")"}), Strings{});
  EXPECT_EQ(notes_of({R"("a.png")"}, {.declared = {{"x", {Kind::image}}}}), Strings{});
}

TEST(Notes, ValuesThatAreAllDifferent) {
  const Strings every = {"x: every value is different; --ignore x?"};
  EXPECT_EQ(notes_of(numbered(100, "", "")), every);
  EXPECT_EQ(notes_of(numbered(100, "\"id-", "\"")), every);
  EXPECT_EQ(notes_of(numbered(1000, "", "")), every);
  EXPECT_EQ(notes_of(numbered(1001, "", "")), Strings{"x: the first 1000 values are all different; --ignore x?"});
  EXPECT_EQ(notes_of(numbered(99, "", "")), Strings{});
  EXPECT_EQ(notes_of(numbered(200, "", ".5")), Strings{});               // measured, not counted
  EXPECT_EQ(notes_of(numbered(200, "\"some words ", "\"")), Strings{});  // a text
  for (const int count : {100, 500}) {
    Strings repeated = numbered(count, "", "");
    repeated.push_back("7");
    EXPECT_EQ(notes_of(repeated), Strings{}) << count;
  }
}

TEST(Notes, AreNotStored) {
  const SharedSchema schema = schema_of({R"({"x": "a.png"})"});
  EXPECT_EQ(schema->notes.size(), 1);
  EXPECT_TRUE(Schema::from_json(schema->to_json(), "s.json").notes.empty());
}

TEST(Inference, SomethingMustBeLeft) {
  const auto message = [](const Strings& records, SchemaOptions options) {
    return error_message<io::Error>([&] { schema_of(records, std::move(options)); });
  };
  const Strings records = {R"({"a": {"b": 1}, "y": "c"})"};
  EXPECT_EQ(message(records, {.ignore = {"a", "y"}}), "nothing is left to learn from");
  EXPECT_EQ(message(records, {.target = "y", .ignore = {"a"}}), "nothing is left to learn from beside the target y");
  EXPECT_EQ(message(records, {.target = "y", .fields = {"y"}}), "nothing is left to learn from beside the target y");
  EXPECT_EQ(message({R"({"y": "c"})"}, {.target = "y"}), "nothing is left to learn from beside the target y");
  EXPECT_EQ(message(records, {.target = "y", .fields = {"a.b"}}), "(no error)");
  EXPECT_EQ(message({"{}"}, {}), "(no error)");
  EXPECT_EQ(message({R"({"a": null, "y": 1})"}, {.target = "y"}), "(no error)");
  EXPECT_EQ(error_message([] {
              SchemaInference({.fields = {"a", "b"}, .ignore = {"b"}});
            }),
            "the field b is named by --fields and by --ignore");
  EXPECT_EQ(error_message([] { SchemaInference({.fields = {"a.b"}, .ignore = {"a"}}); }),
            "the field a.b, which --fields names, is inside a, which --ignore names");
}

TEST(Inference, WhatIsDeclaredMustBeThere) {
  const auto message = [](const std::string& value, Kind kind) {
    return error_message<io::Error>([&] { schema_of({"{\"x\": " + value + "}"}, {.declared = {{"x", {kind}}}}); });
  };
  EXPECT_EQ(message("[1]", Kind::graph), "the schema file says that the field x is graph; in the records it is array");
  EXPECT_EQ(message(R"("a")", Kind::null), "the schema file says that the field x is null; in the records it is text");
  EXPECT_EQ(message("1", Kind::object), "the schema file says that the field x is object; in the records it is number");
  EXPECT_EQ(message(R"({"$graph": {"nodes": [1], "edges": []}})", Kind::graph), "(no error)");
  EXPECT_EQ(message("null", Kind::null), "(no error)");
  EXPECT_EQ(message("null", Kind::number), "(no error)");
  EXPECT_EQ(message("[1]", Kind::set), "(no error)");
  EXPECT_EQ(message("1", Kind::category), "(no error)");
}

TEST(Inference, MisspeltSpecialKeysAreBadRecords) {
  const auto message = [](const std::string& record) { return error_message<BadRecord>([&] { schema_of({record}); }); };
  EXPECT_EQ(message(R"({"x": {"$imgae": "a.png"}})"),
            "field x has the key $imgae; did you mean $image? Known are $image, $set, $vector and $graph");
  EXPECT_EQ(message(R"({"$sets": [1]})"),
            "the record has the key $sets; did you mean $set? Known are $image, $set, $vector and $graph");
  for (const std::string key : {"$ref", "$oid", "$date", "$numberLong", "image"}) {
    EXPECT_EQ(message("{\"x\": {\"" + key + "\": \"a\"}}"), "(no error)") << key;
  }
  const SharedSchema schema = schema_of({R"({"x": {"a": 1}})"});
  EXPECT_NE(
      error_message<BadRecord>([&] { compile(schema, R"({"x": {"$vectro": [1]}})"); }).find("did you mean $vector?"),
      std::string::npos);
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
    const std::string error = message(pointer, nlohmann::json({{"x", nullptr}}));
    EXPECT_EQ(error.substr(0, 7), "s.json:") << pointer;
    EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
  }
  EXPECT_EQ(error_message<io::Error>([] { Schema::from_json(nlohmann::json::array(), "s.json"); }).substr(0, 7),
            "s.json:");
}

TEST(Schema, NoTaskIsNoTask) {
  EXPECT_EQ(error_message([] { task_of("none"); }),
            "'none' is no task; expected one of classification, regression, multilabel, nodes");
}

TEST(SimilarNames, AreThoseOfAFewDifferentLetters) {
  const Strings known = {"train", "eval", "predict", "inspect"};
  EXPECT_EQ(similar_name("trian", known), "train");
  EXPECT_EQ(similar_name("Evla", known), "eval");
  EXPECT_EQ(similar_name("inspct", known), "inspect");
  EXPECT_EQ(similar_name("predits", known), "predict");
  for (const std::string name : {"", "x", "tr", "brawn", "something"}) EXPECT_EQ(similar_name(name, known), "") << name;
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
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
  EXPECT_EQ(message(R"({"fields": {"a": {"kind": 1}}})"), "field a: type must be string, but is number");
  EXPECT_EQ(message(R"({"image": {"patch": "x"}})"), "image.patch is \"x\"; expected 1 to 16384");
  EXPECT_EQ(message("{,").substr(0, 36), "parse error at line 1, column 2: syn");
  for (const std::string text :
       {"", "[]", "{\"fields\": 3}", "{\"fields\": {\"a\": 1}}", "{\"fields\": {\"a\": {\"levels\": 3}}}",
        "{\"image\": []}", "{\"image\": {\"patch\": \"x\"}}", "{\"fields\": {\"a..b\": \"text\"}}"}) {
    EXPECT_FALSE(message(text).empty()) << text;
    EXPECT_EQ(message(text).find("json.exception"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ramify::signal
