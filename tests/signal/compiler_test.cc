// Every kind of value as a part of the tree, what becomes of things that the schema does not know, and bad records.
#include "signal/compiler.h"

#include <gtest/gtest.h>

#include <string>

#include "generators/error_message.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::compile;
using testing::error_message;
using testing::first_of;
using testing::schema_of;
using testing::SharedSchema;
using testing::text_of;

const std::string kRecord =
    R"({"title": "A red fox. It ran!", "price": 3, "kind": "new", "sold": true, "tags": ["x", "y"]})";
const std::string kSecond =
    R"({"title": "Old thing", "price": 5, "kind": "new", "sold": false, "tags": ["x", "x", "y"]})";

std::string bad(const SharedSchema& schema, const std::string& record, const CompilerOptions& options = {}) {
  return error_message<BadRecord>([&] { compile(schema, record, options); });
}

TEST(Compiler, MakesTheTreeOfARecord) {
  EXPECT_EQ(first_of({kRecord, kSecond}),
            "(title=(((a red fox .) (it ran !))) price=#1:-1 kind=<kind=new> sold=<sold=true> "
            "tags=(<tags[]=x> <tags[]=y>))");
}

TEST(Compiler, TextsHaveTheLevelsAskedFor) {
  const std::vector<std::string> records = {R"({"t": "One two. Three.\n\nFour."})", R"({"t": "x y. z"})"};
  const auto with = [&](const char* levels) { return first_of(records, {.text_levels = parse_text_levels(levels)}); };
  EXPECT_EQ(with("paragraph,sentence,token"), "(t=(((one two .) (three .)) ((four .))))");
  EXPECT_EQ(with("sentence,token"), "(t=((one two .) (three .) (four .)))");
  EXPECT_EQ(with("paragraph,token"), "(t=((one two . three .) (four .)))");
  EXPECT_EQ(with("token"), "(t=(one two . three . four .))");
  EXPECT_EQ(with("text-leaf"), "(t=<t=One two. Three.\n\nFour.>)");
  EXPECT_THROW(parse_text_levels("token,sentence"), std::invalid_argument);
  EXPECT_THROW(parse_text_levels("sentence"), std::invalid_argument);
  EXPECT_THROW(parse_text_levels("word,token"), std::invalid_argument);
  EXPECT_THROW(parse_text_levels(""), std::invalid_argument);
}

TEST(Compiler, WhatIsEmptyIsOneLeaf) {
  const std::string record =
      R"({"a": [], "b": {}, "c": " \n ", "d": {"$set": []}, "e": {"$graph": {"nodes": [], "edges": []}}})";
  EXPECT_EQ(first_of({record, R"({"c": "some text here"})"}),
            "(a=<a=(empty)> b=<b=(empty)> c=<c=(empty)> d=<d=(empty)> e=<e=(empty)>)");
  EXPECT_EQ(first_of({"{}"}), "<=(empty)>");
  EXPECT_EQ(first_of({"[]"}), "<=(empty)>");
  // nothing is left of it
  const SharedSchema schema = schema_of({R"({"label": "a", "x": 1})"}, {.target = "label"});
  EXPECT_EQ(text_of(compile(schema, R"({"label": "a"})"), schema), "<empty>");
}

TEST(Compiler, RecordsNeedNotBeObjects) {
  EXPECT_EQ(first_of({"[1, 3]"}), "(#1:-1 #1:1)");
  EXPECT_EQ(first_of({"7"}), "#1:0");
  EXPECT_EQ(first_of({"\"some text\""}), "(((some text)))");
  EXPECT_EQ(first_of({"null"}), "<=null>");
  EXPECT_EQ(first_of({"true"}), "<=true>");
}

TEST(Compiler, NestedListsOfAnyDepthShareOneField) {
  const SharedSchema schema =
      schema_of({R"({"e": ["MAX", 1, 2, ["MIN", 2, 1]]})", R"({"e": ["MAX", 1, ["MIN", 2, 1]]})"});
  EXPECT_EQ(text_of(compile(schema, R"({"e": ["MIN", ["MAX", ["MAX", 1, 9]]]})"), schema),
            "(e=(<e[]=MIN> (<e[]=MAX> (<e[]=MAX> <e[]=1> <e[]=(other)>))))");
}

TEST(Compiler, SetsHaveNoPlaces) {
  const SharedSchema schema = schema_of({R"({"s": {"$set": [1, 2]}, "a": [1, 2]})"});
  const Signal signal = compile(schema, R"({"s": {"$set": [1, 2]}, "a": [1, 2]})");
  EXPECT_EQ(signal.domain, (std::vector<Domain>{Domain::none, Domain::key, Domain::key, Domain::none, Domain::none,
                                                Domain::sequence, Domain::sequence}));
  EXPECT_EQ(signal.place[5], 0);
  EXPECT_EQ(signal.place[6], 1);
  // declared ones, too
  const SharedSchema declared = schema_of({R"({"a": [1, 2]})"}, {.declared = {{"a", {Kind::set}}}});
  EXPECT_EQ(compile(declared, R"({"a": [1, 2]})").domain.back(), Domain::none);
}

TEST(Compiler, VectorsAreOneLeaf) {
  EXPECT_EQ(first_of({R"({"v": {"$vector": [1, 2.5]}, "w": {"$vector": [3]}})"}), "(v=v[1 2.5] w=v[3])");
  EXPECT_EQ(first_of({R"({"v": [1, 2]})"}, {.declared = {{"v", {Kind::vector}}}}), "(v=v[1 2])");
}

TEST(Compiler, DeclaredKindsWin) {
  const std::string record = R"({"year": 1999, "name": "The name. Of it.", "note": "x", "deep": {"a": 1, "b": 2}})";
  EXPECT_EQ(first_of({record}, {.declared = {{"year", {Kind::category}},
                                             {"name", {Kind::text_leaf}},
                                             {"note", {Kind::ignore}},
                                             {"deep.a", {Kind::text, {{TextLevel::token}}}}}}),
            "(year=<year=1999> name=<name=The name. Of it.> deep=(a=(1) b=#1:0))");
}

TEST(Compiler, KeepsOnlyTheFieldsAskedFor) {
  const std::string record = R"({"a": 1, "b": {"c": 2, "d": 3}, "e": [{"f": 4, "g": 5}]})";
  EXPECT_EQ(first_of({record}, {.fields = {"a", "b.c"}}), "(a=#1:0 b=(c=#2:0))");
  EXPECT_EQ(first_of({record}, {.fields = {"e[].g"}}), "(e=((g=#1:0)))");
  EXPECT_EQ(first_of({record}, {.ignore = {"b.c", "e"}}), "(a=#1:0 b=(d=#2:0))");
  EXPECT_EQ(first_of({record}, {.fields = {"b"}, .ignore = {"b.d"}}), "(b=(c=#1:0))");
  // new keys do not come in either
  const SharedSchema schema = schema_of({record}, {.fields = {"a", "b.c"}});
  EXPECT_EQ(text_of(compile(schema, R"({"z": 1, "a": 1, "b": {"y": 3, "c": 2}})"), schema), "(a=#1:0 b=(c=#2:0))");
}

TEST(Compiler, UnknownKeysAreCompiledByTheirType) {
  const SharedSchema schema = schema_of({kRecord, kSecond});
  const Signal signal = compile(schema, R"({"redFox": "it ran", "z": {"price": 1, "q": [true, null, false, {}]}})");
  EXPECT_EQ(text_of(signal, schema), "(?=(((it ran))) ?=(price=#0:0.881 ?=(<true> <null> <false> <empty>)))");
  const std::vector<int32_t> words = {schema->tokenizer->size() > 0 ? signal.unknown_keys[0][0] : 0,
                                      signal.unknown_keys[0][1]};
  EXPECT_EQ(schema->tokenizer->token(words[0]), "red");
  EXPECT_EQ(schema->tokenizer->token(words[1]), "fox");
}

TEST(Compiler, WhatNoModalityCanHoldIsUnknown) {
  const SharedSchema schema = schema_of({R"({"a": "some words"})"});
  EXPECT_EQ(text_of(compile(schema, R"({"n": 4, "v": {"$vector": [1]}, "i": {"$image": "x.png"}})"), schema),
            "(?=<unknown> ?=<unknown> ?=<unknown>)");
}

TEST(Compiler, UnseenCategoriesAreOther) {
  const SharedSchema schema = schema_of({kRecord, kSecond});
  EXPECT_EQ(text_of(compile(schema, R"({"kind": "used", "tags": ["z"]})"), schema),
            "(kind=<kind=(other)> tags=(<tags[]=(other)>))");
}

TEST(Compiler, NullIsAllowedEverywhere) {
  const SharedSchema schema = schema_of({R"({"a": 1, "b": "x y z.", "c": [1], "d": null})", R"({"a": null})"});
  EXPECT_EQ(text_of(compile(schema, R"({"a": null, "b": null, "c": null, "d": null})"), schema),
            "(a=<a=null> b=<null> c=<null> d=<d=null>)");
  // a field that was always null can be anything
  EXPECT_EQ(text_of(compile(schema, R"({"d": [2]})"), schema), "(d=(#0:1.44))");
}

TEST(Compiler, WrongTypesAreBadRecords) {
  const SharedSchema schema =
      schema_of({kRecord, kSecond, R"({"o": {"p": 1}, "v": {"$vector": [1, 2]}, "s": {"$set": [1]}})"});
  EXPECT_EQ(bad(schema, R"({"price": "3"})"), "field price is a string, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": true})"), "field price is true or false, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": [3]})"), "field price is an array, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": {"a": 3}})"), "field price is an object, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": {"$set": [3]}})"), "field price is a $set, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": {"$vector": [3]}})"), "field price is a $vector, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": {"$image": "x"}})"), "field price is an $image, the schema says number");
  EXPECT_EQ(bad(schema, R"({"price": {"$graph": {"nodes": [1], "edges": []}}})"),
            "field price is a $graph, the schema says number");
  EXPECT_EQ(bad(schema, R"({"sold": "yes"})"), "field sold is a string, the schema says boolean");
  EXPECT_EQ(bad(schema, R"({"sold": 1})"), "field sold is a number, the schema says boolean");
  EXPECT_EQ(bad(schema, R"({"tags": "x"})"), "field tags is a string, the schema says array");
  EXPECT_EQ(bad(schema, R"({"o": {"p": "x"}})"), "field o.p is a string, the schema says number");
  EXPECT_EQ(bad(schema, R"({"tags": [["x"]]})"), "field tags[] is an array, the schema says category");
  EXPECT_EQ(bad(schema, R"([1])"), "the record is an array, the schema says object");
  EXPECT_EQ(bad(schema, R"({"v": {"$vector": [1, 2, 3]}})"), "field v is a vector of 3 numbers, the schema says 2");
  EXPECT_EQ(bad(schema, R"({"v": {"$vector": [1, "2"]}})"), "field v is a vector with a string in it");
  EXPECT_EQ(bad(schema, R"({"v": {"$vector": [1, 1e200]}})"),
            "field v is a vector with 1e+200, which does not fit into 32 bits");
}

TEST(Compiler, SpecialValuesMustBeWellFormed) {
  const SharedSchema schema = schema_of({kRecord});
  EXPECT_EQ(bad(schema, R"({"x": {"$set": 1}})"), "field x has a number after $set; expected an array");
  EXPECT_EQ(bad(schema, R"({"x": {"$vector": {}}})"), "field x has an object after $vector; expected an array");
  EXPECT_EQ(bad(schema, R"({"x": {"$image": ["a"]}})"), "field x has an array after $image; expected a string");
  EXPECT_EQ(bad(schema, R"({"x": {"$set": [], "y": 1}})"), "field x has other keys beside $set; expected it alone");
  for (const std::string graph : {"[]", R"({"nodes": [1]})", R"({"edges": []})", R"({"nodes": 1, "edges": []})",
                                  R"({"nodes": [], "edges": [], "more": 1})"}) {
    EXPECT_NE(bad(schema, R"({"x": {"$graph": )" + graph + "}}").find("is a $graph without nodes and edges"),
              std::string::npos)
        << graph;
  }
  // other keys with a dollar are keys
  EXPECT_EQ(text_of(compile(schema, R"({"x": {"$other": true}})"), schema), "(?=(?=<true>))");
}

TEST(Compiler, LongRecordsAreCutInTheOrderOfTheirLeaves) {
  const std::string record = R"({"a": [1, 2], "t": "one two three four. Five six", "b": {"c": [3, 4]}, "d": "x"})";
  const auto cut = [&](int64_t most) {
    const SharedSchema schema = schema_of({record}, {.max_leaves = most});
    const Signal signal = compile(schema, record);
    EXPECT_EQ(signal.num_leaves(), std::min<int64_t>(most, 12));
    EXPECT_EQ(signal.truncated, most < 12) << most;
    return text_of(signal, schema);
  };
  EXPECT_EQ(cut(1), "(a=(#1:-1))");
  EXPECT_EQ(cut(2), "(a=(#1:-1 #1:1))");
  EXPECT_EQ(cut(4), "(a=(#1:-1 #1:1) t=(((one two))))");
  EXPECT_EQ(cut(7), "(a=(#1:-1 #1:1) t=(((one two three four .))))");
  EXPECT_EQ(cut(10), "(a=(#1:-1 #1:1) t=(((one two three four .) (five six))) b=(c=(#2:-1)))");
  EXPECT_EQ(cut(11), "(a=(#1:-1 #1:1) t=(((one two three four .) (five six))) b=(c=(#2:-1 #2:1)))");
  for (int64_t most = 3; most < 14; ++most) cut(most);
}

TEST(Compiler, NumbersAreNormalisedAndCutOff) {
  const SharedSchema schema = schema_of({R"({"x": 1})", R"({"x": 3})"});
  const auto value = [&](const std::string& number) { return compile(schema, "{\"x\": " + number + "}").values[0]; };
  EXPECT_FLOAT_EQ(value("2"), 0);
  EXPECT_FLOAT_EQ(value("2.5"), 0.5);
  EXPECT_FLOAT_EQ(value("1e300"), 10);
  EXPECT_FLOAT_EQ(value("-1e300"), -10);
}

TEST(Compiler, LabelsTellWhatNodesAre) {
  const SharedSchema schema = schema_of({kRecord, kSecond});
  const Signal signal = compile(schema, kRecord, {.labels = Labels::all});
  ASSERT_EQ(signal.labels.size(), signal.children.size());
  std::string text;
  for (const NodeLabel& label : signal.labels) text += label.label + ":" + label.kind + ":" + label.text + " ";
  EXPECT_EQ(text,
            ":object: title:text: price:number:3 kind:category:new sold:category:true tags:array: 0:paragraph: "
            "0:category:x 1:category:y 0:sentence: 1:sentence: 0:token:A 1:token:red 2:token:fox 3:token:. 0:token:It "
            "1:token:ran 2:token:! ");
  EXPECT_TRUE(compile(schema, kRecord).labels.empty());
  EXPECT_EQ(compile(schema, R"({"title": ""})", {.labels = Labels::all}).labels[1].kind, "empty");
}

TEST(Compiler, DeepRecordsCompile) {
  const auto nested = [](size_t levels) {
    return R"({"a": )" + std::string(levels, '[') + "1" + std::string(levels, ']') + "}";
  };
  const SharedSchema schema = schema_of({nested(999)});
  const Signal signal = compile(schema, nested(999), {.labels = Labels::all});
  EXPECT_EQ(signal.num_levels(), 1001);
  EXPECT_EQ(signal.num_leaves(), 1);
  EXPECT_EQ(bad(schema, nested(99'999)), "nested 100000 levels deep; at most 1000 are read");
}

}  // namespace
}  // namespace ramify::signal
