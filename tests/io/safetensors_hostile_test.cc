// Files that lie. Every one must end in an Error that names the file and says what is wrong with it.
#include <gtest/gtest.h>

#include <random>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/safetensors.h"
#include "io/safetensors_bytes.h"

namespace ramify::io {
namespace {

using testing::error_message;
using testing::length_bytes;
using testing::safetensors_bytes;
using testing::TemporaryFolder;

struct HostileFile {
  std::string what;
  std::string bytes;
  std::string message;  // a part of it
};

// A header of one tensor "a" of these fields, and `data_bytes` of data.
std::string one(const std::string& fields, size_t data_bytes = 4) {
  return safetensors_bytes("{\"a\":{" + fields + "}}", std::string(data_bytes, 'x'));
}

std::string tensor(const std::string& shape, const std::string& offsets, const std::string& dtype = "\"U8\"") {
  return "\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets;
}

std::string two(const std::string& first, const std::string& second, size_t data_bytes) {
  return safetensors_bytes("{\"a\":{" + first + "},\"b\":{" + second + "}}", std::string(data_bytes, 'x'));
}

std::vector<HostileFile> broken_frames() {
  const std::string json = "is not valid JSON";
  return {
      {"empty file", "", "is too short"},
      {"seven bytes", "1234567", "is too short"},
      {"only a length", length_bytes(0), "does not begin with {"},
      {"length beyond the file", length_bytes(100) + "{}", "ends inside its header"},
      {"length one too large", length_bytes(3) + "{}", "ends inside its header"},
      {"length over the limit", length_bytes(100'000'001) + "{}", "expected at most 100000000"},
      {"length of 2^63", length_bytes(uint64_t{1} << 63) + "{}", "expected at most 100000000"},
      {"length of 2^64 - 1", length_bytes(~uint64_t{0}) + "{}", "expected at most 100000000"},
      {"another file", std::string("PK\3\4") + std::string(100, 'x'), "expected at most 100000000"},
      {"header is a list", safetensors_bytes("[]"), "does not begin with {"},
      {"header begins with space", safetensors_bytes(" {}"), "does not begin with {"},
      {"header of zeros", safetensors_bytes(std::string(16, '\0')), "does not begin with {"},
      {"JSON cut short", safetensors_bytes("{\"a\":{\"dtype\":\"U8\""), json},
      {"text after the JSON", safetensors_bytes("{}x"), json},
      {"two JSON objects", safetensors_bytes("{}{}"), json},
      {"key without quotes", safetensors_bytes("{a:1}"), json},
      {"trailing comma", one(tensor("[4]", "[0,4]") + ","), json},
      {"name is not UTF-8", safetensors_bytes("{\"\xFF\":{" + tensor("[0]", "[0,0]") + "}}"), json},
      {"lone surrogate", safetensors_bytes("{\"\\ud800\":{" + tensor("[0]", "[0,0]") + "}}"), json},
      {"raw control character", safetensors_bytes("{\"\n\":{" + tensor("[0]", "[0,0]") + "}}"), json},
      {"comment", safetensors_bytes("{/**/}"), json},
      {"NaN", one(tensor("[NaN]", "[0,4]")), json},
  };
}

std::vector<HostileFile> broken_entries() {
  const std::string place = "out of place";
  return {
      {"tensor is null", safetensors_bytes("{\"a\":null}"), place},
      {"tensor is a number", safetensors_bytes("{\"a\":1}"), place},
      {"tensor is a list", safetensors_bytes("{\"a\":[]}"), place},
      {"tensor is a string", safetensors_bytes("{\"a\":\"U8\"}"), place},
      {"no fields", one(""), "lacks dtype, shape or data_offsets"},
      {"no dtype", one("\"shape\":[4],\"data_offsets\":[0,4]"), "lacks dtype"},
      {"no shape", one("\"dtype\":\"U8\",\"data_offsets\":[0,4]"), "lacks dtype"},
      {"no offsets", one("\"dtype\":\"U8\",\"shape\":[4]"), "lacks dtype"},
      {"field that is not known", one(tensor("[4]", "[0,4]") + ",\"more\":1"), "has a field \"more\""},
      {"dtype twice", one(tensor("[4]", "[0,4]") + ",\"dtype\":\"U8\""), "has two dtype"},
      {"shape twice", one(tensor("[4]", "[0,4]") + ",\"shape\":[4]"), "has two shape"},
      {"offsets twice", one(tensor("[4]", "[0,4]") + ",\"data_offsets\":[0,4]"), "has two data_offsets"},
      {"dtype not known", one(tensor("[4]", "[0,4]", "\"F5\"")), "has dtype \"F5\""},
      {"dtype in small letters", one(tensor("[4]", "[0,4]", "\"u8\"")), "has dtype \"u8\""},
      {"dtype of half a byte", one(tensor("[8]", "[0,4]", "\"F4\"")), "has dtype \"F4\""},
      {"dtype with escape codes", one(tensor("[4]", "[0,4]", "\"\\u001b[2J\"")), "has dtype \"\\x1b[2J\""},
      {"dtype is a number", one(tensor("[4]", "[0,4]", "8")), place},
      {"dtype is an object", one(tensor("[4]", "[0,4]", "{}")), place},
      {"shape is a number", one(tensor("4", "[0,4]")), place},
      {"shape is an object", one(tensor("{}", "[0,4]")), place},
      {"size is negative", one(tensor("[-4]", "[0,4]")), "a negative number"},
      {"size is a fraction", one(tensor("[4.0]", "[0,4]")), "a fraction or a huge number"},
      {"size is a string", one(tensor("[\"4\"]", "[0,4]")), place},
      {"size is a boolean", one(tensor("[true]", "[0,4]")), "a boolean"},
      {"size is a list", one(tensor("[[4]]", "[0,4]")), place},
      {"size over 63 bits", one(tensor("[9223372036854775808]", "[0,4]")), "more than 63 bits"},
      {"size over 64 bits", one(tensor("[18446744073709551616]", "[0,4]")), "a fraction or a huge number"},
      {"one offset", one(tensor("[4]", "[4]")), "has not two data_offsets"},
      {"no offset", one(tensor("[4]", "[]")), "has not two data_offsets"},
      {"three offsets", one(tensor("[4]", "[0,4,8]")), "more than two data_offsets"},
      {"negative offset", one(tensor("[4]", "[-4,0]")), "a negative number"},
      {"metadata is a list", safetensors_bytes("{\"__metadata__\":[]}"), place},
      {"metadata is null", safetensors_bytes("{\"__metadata__\":null}"), place},
      {"metadata of numbers", safetensors_bytes("{\"__metadata__\":{\"a\":1}}"), place},
      {"metadata of objects", safetensors_bytes("{\"__metadata__\":{\"a\":{}}}"), place},
      {"metadata twice", safetensors_bytes("{\"__metadata__\":{},\"__metadata__\":{}}"), "two __metadata__"},
      {"metadata key twice", safetensors_bytes(R"({"__metadata__":{"a":"","a":""}})"), "the key \"a\" twice"},
      {"a million levels of lists", one("\"shape\":" + std::string(1'000'000, '[')), place},
      {"a million levels of objects", safetensors_bytes([] {
         std::string deep;
         for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
         return deep;
       }()),
       "has a field \"a\""},
  };
}

std::vector<HostileFile> broken_layouts() {
  const std::string four = tensor("[4]", "[0,4]");
  return {
      {"shape larger than the data", one(tensor("[5]", "[0,4]")), "has 4 bytes; expected 5"},
      {"shape smaller than the data", one(tensor("[3]", "[0,4]")), "has 4 bytes; expected 3"},
      {"dtype wider than the data", one(tensor("[4]", "[0,4]", "\"F32\"")), "has 4 bytes; expected 16"},
      {"scalar of four bytes", one(tensor("[]", "[0,4]")), "has 4 bytes; expected 1"},
      {"end before begin", one(tensor("[4]", "[4,0]")), "ends before it begins"},
      {"product overflows", one(tensor("[4294967296,4294967296]", "[0,4]")), "more than 2^63 bytes"},
      {"product overflows to the right size", one(tensor("[9223372036854775807,4611686018427387905]", "[0,4]")),
       "more than 2^63 bytes"},
      {"bytes overflow", one(tensor("[2305843009213693952]", "[0,4]", "\"F64\"")), "more than 2^63 bytes"},
      {"zero after an overflow", one(tensor("[4294967296,4294967296,0]", "[0,4]")), "more than 2^63 bytes"},
      {"beyond the end", one(tensor("[8]", "[0,8]"), 4), "goes beyond the end"},
      {"far beyond the end", one(tensor("[9223372036854775807]", "[0,9223372036854775807]")), "goes beyond the end"},
      {"begins beyond the end", one(tensor("[0]", "[8,8]")), "begins at byte 8 of the data; expected 0 (gap)"},
      {"bytes after the last tensor", one(four, 5), "has 1 bytes after the last tensor"},
      {"data without tensors", safetensors_bytes("{}", "x"), "has 1 bytes after the last tensor"},
      {"cut short", one(four, 3), "goes beyond the end"},
      {"no data at all", one(four, 0), "goes beyond the end"},
      {"gap at the start", one(tensor("[4]", "[1,5]"), 5), "begins at byte 1 of the data; expected 0 (gap)"},
      {"gap between", two(four, tensor("[4]", "[5,9]"), 9), "begins at byte 5 of the data; expected 4 (gap)"},
      {"overlap of one byte", two(four, tensor("[4]", "[3,7]"), 7), "expected 4 (overlap)"},
      {"same place", two(four, four, 4), "expected 4 (overlap)"},
      {"one inside the other", two(tensor("[8]", "[0,8]"), tensor("[4]", "[2,6]"), 8), "expected 8 (overlap)"},
      {"empty tensor inside another", two(four, tensor("[0]", "[2,2]"), 4), "expected 4 (overlap)"},
      {"same name twice",
       safetensors_bytes("{\"a\":{" + four + "},\"a\":{" + tensor("[4]", "[4,8]") + "}}", "12345678"),
       "has the tensor \"a\" twice"},
      {"same name twice, once escaped",
       safetensors_bytes("{\"a\":{" + four + "},\"\\u0061\":{" + tensor("[4]", "[4,8]") + "}}", "12345678"),
       "has the tensor \"a\" twice"},
  };
}

void expect_errors(const std::vector<HostileFile>& files) {
  const TemporaryFolder folder;
  for (const HostileFile& file : files) {
    const std::string path = folder.write("a.safetensors", file.bytes);
    const std::string message = error_message<Error>([&] { SafetensorsReader reader(path); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << file.what << ": " << message;
    EXPECT_NE(message.find(file.message), std::string::npos) << file.what << ": " << message;
    EXPECT_LT(message.size(), path.size() + 300) << file.what;
  }
}

TEST(HostileSafetensors, BrokenFramesSayWhy) {
  expect_errors(broken_frames());
}

TEST(HostileSafetensors, BrokenEntriesSayWhy) {
  expect_errors(broken_entries());
}

TEST(HostileSafetensors, BrokenLayoutsSayWhy) {
  expect_errors(broken_layouts());
}

TEST(HostileSafetensors, EveryTruncationIsAnError) {
  const TemporaryFolder folder;
  const std::string bytes = two(tensor("[4]", "[0,4]"), tensor("[2,2]", "[4,12]", "\"F16\""), 12);
  EXPECT_NO_THROW(SafetensorsReader(folder.write("a", bytes)));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(SafetensorsReader(folder.write("a", std::string_view(bytes).substr(0, length))), Error) << length;
  }
}

TEST(HostileSafetensors, RandomChangesNeverDoMoreThanThrow) {
  const TemporaryFolder folder;
  const std::string bytes = two(tensor("[4]", "[0,4]"), tensor("[2,2]", "[4,12]", "\"F16\""), 12);
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string changed = bytes;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      changed[random() % changed.size()] = "0123456789{}[]\",:\xFF"[random() % 18];
    }
    try {
      const SafetensorsReader reader(folder.write("a", changed));
      for (const TensorInfo& info : reader.tensors()) {
        std::vector<std::byte> data(static_cast<size_t>(info.size));
        reader.read(info.name, data);
      }
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ramify::io
