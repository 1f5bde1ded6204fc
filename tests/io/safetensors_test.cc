#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/safetensors_bytes.h"

namespace ramify::io {
namespace {

using testing::error_message;
using testing::safetensors_bytes;
using testing::TemporaryFolder;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string read(const SafetensorsReader& reader, std::string_view name) {
  std::string bytes(static_cast<size_t>(reader.at(name).size), '\0');
  reader.read(name, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(Safetensors, FileOfAnotherWriterIsRead) {
  const TemporaryFolder folder;
  const SafetensorsReader reader(folder.write(
      "a",
      safetensors_bytes(R"({"w":{"dtype":"F16","shape":[1,2],"data_offsets":[2,6]},)"
                        R"("b":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"},"__metadata__":{"format":"pt"}}   )",
                        "xyabcd")));
  ASSERT_EQ(reader.tensors().size(), 2u);
  EXPECT_EQ(reader.tensors()[0].name, "b");
  EXPECT_EQ(reader.tensors()[0].shape, std::vector<int64_t>());
  EXPECT_EQ(reader.tensors()[1].dtype, "F16");
  EXPECT_EQ(reader.tensors()[1].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read(reader, "b"), "xy");
  EXPECT_EQ(read(reader, "w"), "abcd");
  EXPECT_EQ(reader.metadata(), (TensorMetadata{{"format", "pt"}}));
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  const std::string name = "tabs\t, \"quotes\" and \xC3\xA9";
  const TensorBytes tensors[] = {{"mask", "BOOL", {3}, bytes_of(std::string_view("\1\0\1", 3))},
                                 {"none", "F32", {2, 0, 3}, {}},
                                 {name, "F64", {}, bytes_of("12345678")},
                                 {"a.b", "I16", {2, 1}, bytes_of("wxyz")}};
  write_safetensors(folder / "a", tensors, {{"seed", "7"}, {"note", ""}});
  const SafetensorsReader reader(folder / "a");
  EXPECT_EQ(reader.metadata(), (TensorMetadata{{"note", ""}, {"seed", "7"}}));
  ASSERT_EQ(reader.tensors().size(), 4u);
  for (const TensorBytes& tensor : tensors) {
    const TensorInfo& info = reader.at(tensor.name);
    EXPECT_EQ(info.dtype, tensor.dtype);
    EXPECT_EQ(info.shape, tensor.shape);
    EXPECT_EQ(info.offset % dtype_bytes(info.dtype), 0) << "not aligned: " << info.name;
    const std::string bytes = read(reader, tensor.name);
    EXPECT_TRUE(std::ranges::equal(bytes_of(bytes), tensor.bytes)) << info.name;
  }
  EXPECT_EQ(folder.num_entries(), 1u);
}

TEST(Safetensors, PartsOfATensorAreRead) {
  const TemporaryFolder folder;
  const TensorBytes tensors[] = {{"a", "U8", {4}, bytes_of("abcd")}, {"b", "U8", {6}, bytes_of("123456")}};
  write_safetensors(folder / "a", tensors);
  const SafetensorsReader reader(folder / "a");
  std::string part(3, '\0');
  reader.read_part(reader.at("b"), 2, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "345");
}

TEST(Safetensors, TellsWhetherTheOpenFileWasChanged) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {});
  const SafetensorsReader reader(folder / "a");
  EXPECT_TRUE(reader.is_unchanged());
  write_safetensors(folder / "a", {}, {{"of", "another file"}});  // in its place
  EXPECT_TRUE(reader.is_unchanged());
  const SafetensorsReader later(folder / "a");
  const auto then = std::filesystem::last_write_time(folder / "a");
  std::filesystem::last_write_time(folder / "a", then + std::chrono::milliseconds(1));
  EXPECT_FALSE(later.is_unchanged());
}

TEST(Safetensors, OrderOfTheTensorsGivenDoesNotMatter) {
  const TemporaryFolder folder;
  const TensorBytes forward[] = {{"a", "U8", {1}, bytes_of("1")}, {"b", "U8", {1}, bytes_of("2")}};
  const TensorBytes backward[] = {forward[1], forward[0]};
  write_safetensors(folder / "a", forward);
  write_safetensors(folder / "b", backward);
  EXPECT_EQ(folder.read("a"), folder.read("b"));
}

TEST(Safetensors, FileWithoutTensors) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a", {});
  EXPECT_TRUE(SafetensorsReader(folder / "a").tensors().empty());
}

TEST(Safetensors, ReadingChecksNameAndSize) {
  const TemporaryFolder folder;
  const TensorBytes tensors[] = {{"a", "F32", {1}, bytes_of("abcd")}};
  write_safetensors(folder / "a", tensors);
  const SafetensorsReader reader(folder / "a");
  std::byte three[3];
  EXPECT_EQ(error_message<Error>([&] { reader.read("a", three); }),
            folder / "a" + ": tensor \"a\" has 4 bytes; expected 3");
  EXPECT_EQ(error_message<Error>([&] { reader.at("b"); }), folder / "a" + ": has no tensor \"b\"");
  EXPECT_EQ(reader.find("b"), nullptr);
}

TEST(Safetensors, FileCutShortWhileOpenIsAnError) {
  const TemporaryFolder folder;
  const TensorBytes tensors[] = {{"a", "F32", {1}, bytes_of("abcd")}};
  write_safetensors(folder / "a", tensors);
  const SafetensorsReader reader(folder / "a");
  std::filesystem::resize_file(folder / "a", std::filesystem::file_size(folder / "a") - 1);
  EXPECT_NE(error_message<Error>([&] { read(reader, "a"); }).find("expected 1 more bytes"), std::string::npos);
}

TEST(SafetensorsWriter, NothingAppearsBeforeCommit) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "a", {{"a", "U8", {1}}});
    EXPECT_NE(error_message<Error>([&] { writer.commit(); }).find("\"a\" was not written"), std::string::npos);
    writer.write("a", bytes_of("x"));
    EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  }
  EXPECT_EQ(folder.num_entries(), 0u);
}

TEST(SafetensorsWriter, RefusesWhatCouldNotBeRead) {
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<TensorInfo> tensors, const TensorMetadata& metadata = {}) {
    return error_message<Error>([&] { SafetensorsWriter(folder / "a", std::move(tensors), metadata); });
  };
  EXPECT_NE(refused({{"a", "U8", {1}}, {"a", "U8", {2}}}).find("a name of its own"), std::string::npos);
  EXPECT_NE(refused({{"__metadata__", "U8", {1}}}).find("a name of its own"), std::string::npos);
  EXPECT_NE(refused({{"a", "FLOAT", {1}}}).find("with its dtype and shape"), std::string::npos);
  EXPECT_NE(refused({{"a", "U8", {-1}}}).find("with its dtype and shape"), std::string::npos);
  EXPECT_NE(refused({{"a", "F64", {int64_t{1} << 61}}}).find("with its dtype and shape"), std::string::npos);
  EXPECT_NE(refused({{"\xFF", "U8", {1}}}).find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(refused({}, {{"key", "\xFF"}}).find("not valid UTF-8"), std::string::npos);
}

TEST(SafetensorsWriter, TensorsComeInOrderAndWhole) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "a", {{"b", "U8", {2}}, {"a", "U8", {1}}});
  EXPECT_NE(error_message<Error>([&] { writer.write("b", bytes_of("xy")); }).find("out of order"), std::string::npos);
  EXPECT_NE(error_message<Error>([&] { writer.write("a", bytes_of("xy")); }).find("expected 1"), std::string::npos);
  writer.write("a", bytes_of("1"));
  writer.write("b", bytes_of("23"));
  EXPECT_NE(error_message<Error>([&] { writer.write("b", bytes_of("23")); }).find("out of order"), std::string::npos);
  writer.commit();
  EXPECT_EQ(read(SafetensorsReader(folder / "a"), "b"), "23");
}

}  // namespace
}  // namespace ramify::io
