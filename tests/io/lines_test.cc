#include "io/lines.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zstd.h>

#include <random>
#include <thread>
#include <vector>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"

namespace ramify::io {
namespace {

using testing::error_message;
using testing::TemporaryFolder;
using Lines = std::vector<std::string>;

std::string compress(std::string_view text) {
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  bytes.resize(ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 3));
  return bytes;
}

Lines read_all(LineReader& reader) {
  Lines lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

Lines read_all(const std::string& path, size_t max_line_bytes = LineReader::kMaxLineBytes) {
  LineReader reader(path, max_line_bytes);
  return read_all(reader);
}

// Reads on after lines that are too long; "!" stands for one.
Lines read_with_gaps(LineReader& reader) {
  Lines lines;
  std::string line;
  while (true) {
    try {
      if (!reader.next(line)) return lines;
      lines.push_back(line);
    } catch (const LineTooLong&) {
      lines.push_back("!");
    }
  }
}

TEST(Lines, EndsAreNotPartOfALine) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_all(folder.write("a", "one\ntwo\r\n\nfour\r\r\nlast")), (Lines{"one", "two", "", "four\r", "last"}));
  EXPECT_EQ(read_all(folder.write("b", "one\n")), (Lines{"one"}));
  EXPECT_EQ(read_all(folder.write("c", "\n\n")), (Lines{"", ""}));
  EXPECT_EQ(read_all(folder.write("d", "")), (Lines{}));
  EXPECT_EQ(read_all(folder.write("e", std::string("a\0b\nc", 5))), (Lines{std::string("a\0b", 3), "c"}));
}

TEST(Lines, ByteOrderMarkIsDroppedOnlyAtTheStart) {
  const TemporaryFolder folder;
  const std::string text = "\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n";
  const Lines expected = {"one", "\xEF\xBB\xBFtwo"};
  EXPECT_EQ(read_all(folder.write("plain", text)), expected);
  EXPECT_EQ(read_all(folder.write("packed", compress(text))), expected);
}

TEST(Lines, ZstdIsToldByContent) {
  const TemporaryFolder folder;
  const std::string skippable = std::string("\x5A\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
  const std::string bytes = skippable + compress("one\ntw") + compress("") + compress("o\nthree");
  EXPECT_EQ(read_all(folder.write("data.jsonl", bytes)), (Lines{"one", "two", "three"}));
}

TEST(Lines, ManyBuffersLong) {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  Lines expected;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    expected.push_back(std::string(random() % 1000, static_cast<char>('a' + i % 26)));
    text += expected.back() + "\n";
  }
  expected.push_back(std::string(700'000, 'x'));
  text += expected.back();
  EXPECT_EQ(read_all(folder.write("plain", text)), expected);
  EXPECT_EQ(read_all(folder.write("packed", compress(text))), expected);
}

TEST(Lines, NumberCountsFromOneAndStopsAtTheLast) {
  const TemporaryFolder folder;
  LineReader reader(folder.write("a", "one\ntwo\n"));
  std::string line;
  EXPECT_EQ(reader.number(), 0);
  for (const int64_t number : {1, 2}) {
    EXPECT_TRUE(reader.next(line));
    EXPECT_EQ(reader.number(), number);
  }
  EXPECT_FALSE(reader.next(line));
  EXPECT_FALSE(reader.next(line));
  EXPECT_EQ(reader.number(), 2);
  EXPECT_EQ(reader.bytes_taken(), 8);
  EXPECT_EQ(reader.bytes_in_file(), 8);
}

TEST(Lines, TooLongLineIsPassedOver) {
  const TemporaryFolder folder;
  const std::string text = "12345678\n123456789\n12345678\r\n\n" + std::string(500'000, 'x') + "\nend";
  const Lines expected = {"12345678", "!", "12345678", "", "!", "end"};
  for (const auto& bytes : {text, compress(text)}) {
    LineReader reader(folder.write("a", bytes), 8);
    EXPECT_EQ(read_with_gaps(reader), expected);
    EXPECT_EQ(reader.number(), 6);
  }
  LineReader reader(folder / "a", 8);
  std::string line;
  reader.next(line);
  EXPECT_EQ(error_message<LineTooLong>([&] { reader.next(line); }),
            folder / "a" + ":2: the line has 9 bytes; expected at most 8");
  LineReader at_end(folder.write("b", "123456789"), 8);
  EXPECT_EQ(read_with_gaps(at_end), (Lines{"!"}));
}

// 1 GB of zeros in 100 KB of zstd.
TEST(Lines, GigabyteLineTakesLittleMemory) {
  const TemporaryFolder folder;
  const std::string megabyte(size_t{1} << 20, 'x');
  std::string bytes;
  ZSTD_CCtx* context = ZSTD_createCCtx();
  std::string buffer(ZSTD_CStreamOutSize(), '\0');
  for (int i = 0; i <= 1024; ++i) {
    const std::string_view part = i < 1024 ? std::string_view(megabyte) : std::string_view("\nafter\n");
    ZSTD_inBuffer input = {part.data(), part.size(), 0};
    size_t left = 1;
    while (input.pos < input.size || (i == 1024 && left > 0)) {
      ZSTD_outBuffer output = {buffer.data(), buffer.size(), 0};
      left = ZSTD_compressStream2(context, &output, &input, i == 1024 ? ZSTD_e_end : ZSTD_e_continue);
      ASSERT_FALSE(ZSTD_isError(left));
      bytes.append(buffer, 0, output.pos);
    }
  }
  ZSTD_freeCCtx(context);

  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  LineReader reader(folder.write("a", bytes), size_t{1} << 20);
  EXPECT_EQ(read_with_gaps(reader), (Lines{"!", "after"}));
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "kilobytes";
}

TEST(Lines, ZstdCutShortIsAnErrorAtEveryByte) {
  const TemporaryFolder folder;
  std::string text;
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) text += std::to_string(random()) + "\n";
  const std::string bytes = compress(text);
  for (size_t length = 4; length < bytes.size(); ++length) {
    const std::string path = folder.write("a", std::string_view(bytes).substr(0, length));
    EXPECT_NE(error_message<Error>([&] { read_all(path); }).find("the zstd stream is cut short"), std::string::npos)
        << length;
  }
}

TEST(Lines, BrokenZstdEndsTheReaderWithTheLineNumber) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", compress("one\ntwo\n") + "garbage");
  LineReader reader(path);
  std::string line;
  EXPECT_TRUE(reader.next(line));
  EXPECT_TRUE(reader.next(line));
  EXPECT_EQ(error_message<Error>([&] { reader.next(line); }).substr(0, path.size() + 30),
            path + ":3: the zstd stream is broken:");
  EXPECT_FALSE(reader.next(line));
}

TEST(Lines, FlippedBytesOfZstdNeverDoMoreThanThrow) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i * i) + "\n";
  const std::string bytes = compress(text);
  for (size_t i = 4; i < bytes.size(); ++i) {
    std::string broken = bytes;
    broken[i] = static_cast<char>(broken[i] ^ 0x55);
    LineReader reader(folder.write("a", broken), 1000);
    try {
      read_with_gaps(reader);
    } catch (const Error&) {
    }
  }
}

TEST(Lines, HugeZstdWindowIsRefused) {
  const TemporaryFolder folder;
  // magic, no content size, window of 2^31 bytes, one raw block of one byte
  const std::string bytes("\x28\xB5\x2F\xFD\x00\xA8\x09\x00\x00x", 10);
  EXPECT_NE(error_message<Error>([&] { read_all(folder.write("a", bytes)); }).find("requires too much memory"),
            std::string::npos);
}

TEST(Lines, WhatCannotBeReadIsNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_message<Error>([&] { read_all(folder / "none"); }),
            folder / "none" + ": cannot open: No such file or directory");
  EXPECT_EQ(error_message<Error>([&] { read_all(folder.path()); }), folder.path() + ": cannot read: Is a directory");
  EXPECT_EQ(error_message<Error>([&] { read_all(folder.write("a", "\x1F\x8B\x08")); }),
            folder / "a" + ":1: is compressed with gzip; expected plain text or zstd");
}

// A pipe hands over what has been written so far, be it one byte.
TEST(Lines, PipesMayDripAndHaveNoSize) {
  const std::string text = "one\ntwo\nthree\n";
  for (const auto& bytes : {text, compress(text)}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::thread writer([&] {
      for (const char c : bytes) ASSERT_EQ(::write(ends[1], &c, 1), 1);
      ::close(ends[1]);
    });
    LineReader reader("/dev/fd/" + std::to_string(ends[0]));
    EXPECT_EQ(reader.bytes_in_file(), -1);
    EXPECT_EQ(read_all(reader), (Lines{"one", "two", "three"}));
    writer.join();
    ::close(ends[0]);
  }
}

TEST(Lines, DashIsStandardInput) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "one\n");
  const int saved = ::dup(STDIN_FILENO);
  ASSERT_NE(std::freopen(path.c_str(), "r", stdin), nullptr);
  LineReader reader("-");
  EXPECT_EQ(reader.name(), "standard input");
  EXPECT_EQ(read_all(reader), (Lines{"one"}));
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
}

}  // namespace
}  // namespace ramify::io
