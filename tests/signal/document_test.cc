// JSON as a flat list: what is read, and what is refused with a message.
#include "signal/document.h"

#include <gtest/gtest.h>

#include <string>

#include "generators/error_message.h"
#include "signal/compiler.h"

namespace ramify::signal {
namespace {

using testing::error_message;

std::string message(const std::string& json, const Document::Limits& limits = {}) {
  Document document;
  return error_message<BadRecord>([&] { document.parse(json, limits); });
}

TEST(Document, ListsValuesInTheOrderTheyAreWritten) {
  Document document;
  document.parse(R"({"a": [1, -2.5], "b": {"c": "x\u00e9"}, "d": null, "e": true})", {});
  ASSERT_EQ(document.values().size(), 8);
  EXPECT_EQ(document[0].type, Value::Type::object);
  EXPECT_EQ(document[0].items, 4);
  EXPECT_EQ(document[0].end, 8);
  EXPECT_EQ(document[1].type, Value::Type::array);
  EXPECT_EQ(document[1].end, 4);
  EXPECT_EQ(document.key(document[1]), "a");
  EXPECT_EQ(document[2].integer, 1);
  EXPECT_EQ(document[3].number(), -2.5);
  EXPECT_EQ(document.text(document[5]), "x\xc3\xa9");
  EXPECT_EQ(document.key(document[5]), "c");
  EXPECT_EQ(document[6].type, Value::Type::null);
  EXPECT_TRUE(document[7].boolean);
}

TEST(Document, FindsMembers) {
  Document document;
  document.parse(R"({"a": {"b": 1}, "b": 2})", {});
  EXPECT_EQ(document.member(0, "b"), 3);
  EXPECT_EQ(document.member(1, "b"), 2);
  EXPECT_EQ(document.member(0, "c"), 0);
  EXPECT_EQ(document.member(3, "b"), 0);  // not an object
}

TEST(Document, WritesScalarsInTheirShortestForm) {
  Document document;
  document.parse(R"(["s", 12, -7, 0.5, 1e3, 1.0, true, false])", {});
  const std::string expected[] = {"s", "12", "-7", "0.5", "1000", "1", "true", "false"};
  for (size_t i = 0; i < std::size(expected); ++i) {
    std::string buffer;
    EXPECT_EQ(document.written(document[i + 1], buffer), expected[i]);
  }
}

TEST(Document, IsReadAgainAfterAnError) {
  Document document;
  EXPECT_THROW(document.parse("[1, 2", {}), BadRecord);
  document.parse("[1]", {});
  EXPECT_EQ(document.values().size(), 2);
}

TEST(Document, RefusesWhatIsNotJson) {
  EXPECT_EQ(message("[1, 2").substr(0, 10), "not JSON: ");
  EXPECT_NE(message("{\"a\": tru}").find("column 10"), std::string::npos) << message("{\"a\": tru}");
  for (const std::string json :
       {"", "  ", "nan", "[NaN]", "[Infinity]", "{'a': 1}", "{\"a\" 1}", "[1,]", "[1] 2", "{\"a\": 01}", "\"\t\""}) {
    EXPECT_EQ(message(json).substr(0, 10), "not JSON: ") << json;
  }
}

TEST(Document, SaysHowFilesOfOneDocumentBecomeLines) {
  for (const std::string line : {"[", " [\r", "[{\"a\": 1},"}) {
    EXPECT_TRUE(message(line).ends_with("; one record a line is expected: jq -c '.[]' makes that of one array"))
        << line;
  }
  EXPECT_TRUE(
      message("{").ends_with("; one record a line is expected: jq -c . makes that of records over several lines"));
  EXPECT_EQ(message("[1").find("jq"), std::string::npos);
}

TEST(Document, ErrorsAreShortWhateverTheInput) {
  const std::string error = message("[\"" + std::string(1 << 20, 'x'));
  EXPECT_LT(error.size(), 400) << error.size();
}

TEST(Document, RefusesLoneSurrogatesAndBrokenUtf8) {
  for (const std::string json : {R"(["\ud800"])", R"(["\ud800x"])", R"(["\udc00"])", R"(["\ud800\ud800"])",
                                 "[\"\xff\"]", "[\"\xc3\"]", "[\"\xed\xa0\x80\"]"}) {
    EXPECT_EQ(message(json).substr(0, 10), "not JSON: ") << json;
  }
  EXPECT_EQ(message(R"(["\ud83d\ude00"])"), "(no error)");
}

TEST(Document, RefusesNumbersThatDoNotFit) {
  EXPECT_EQ(message("[2, 1e999]"), "the number 1e999 is out of range, column 9");
  EXPECT_EQ(message("[18446744073709551615]"), "the number 18446744073709551615 does not fit into 64 bits");
  EXPECT_EQ(message("[123456789012345678901234567890]"),
            "the number 123456789012345678901234567890 does not fit into 64 bits");
  EXPECT_EQ(message("[9223372036854775807, -9223372036854775808, 1e-999]"), "(no error)");
}

TEST(Document, RefusesTheSameKeyTwice) {
  EXPECT_EQ(message(R"({"a": 1, "b": 2, "a": 3})"), "the key a comes twice in one object");
  std::string many = "{";
  for (int i = 0; i < 40; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_EQ(message(many + "\"k17\": 1}"), "the key k17 comes twice in one object");
  EXPECT_EQ(message(many + "\"k40\": 1}"), "(no error)");
  EXPECT_EQ(message(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"), "(no error)");
}

TEST(Document, RefusesDeepNestingAndSaysHowDeep) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + "1" + std::string(levels, ']'); };
  EXPECT_EQ(message(nested(1000)), "(no error)");
  EXPECT_EQ(message(nested(1001)), "nested 1001 levels deep; at most 1000 are read");
  EXPECT_EQ(message(nested(100'000)), "nested 100000 levels deep; at most 1000 are read");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(message(objects + "1" + std::string(100'000, '}')), "nested 100000 levels deep; at most 1000 are read");
  EXPECT_EQ(message(std::string(3'000'000, '[')).substr(0, 10), "not JSON: ");
}

TEST(Document, RefusesMoreValuesThanItWouldHold) {
  std::string json = "[0";
  for (int i = 0; i < 100; ++i) json += ",0";
  EXPECT_EQ(message(json + "]", {.max_values = 50}), "more than 50 values in one record");
}

}  // namespace
}  // namespace ramify::signal
