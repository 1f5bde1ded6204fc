#include "io/tar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"

namespace ramify::io {
namespace {

using testing::error_message;
using testing::TemporaryFolder;

std::string octal(uint64_t number, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*lo", digits, static_cast<unsigned long>(number));
  return text;
}

void put(std::string& block, size_t at, std::string_view text) {
  block.replace(at, text.size(), text);
}

void put_checksum(std::string& block) {
  put(block, 148, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(block, 148, octal(sum, 6) + std::string("\0 ", 2));
}

struct Header {
  std::string name;
  std::string size = "";  // the field itself; by default the size of the data
  char type = '0';
  std::string link = "";
  std::string prefix = "";
  std::string magic = std::string("ustar\0", 6) + "00";
};

std::string entry(const Header& header, const std::string& data) {
  std::string block(512, '\0');
  put(block, 0, header.name);
  put(block, 124, header.size.empty() ? octal(data.size(), 11) : header.size);
  block[156] = header.type;
  put(block, 157, header.link);
  put(block, 257, header.magic);
  put(block, 345, header.prefix);
  put_checksum(block);
  std::string padded = data;
  padded.resize((data.size() + 511) / 512 * 512, '\0');
  return block + padded;
}

std::string file(const std::string& name, const std::string& data) {
  return entry({.name = name}, data);
}

std::string pax(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

std::string end() {
  return std::string(1024, '\0');
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST(Tar, FilesAreFoundByName) {
  const TemporaryFolder folder;
  const std::string long_name = std::string(150, 'd') + "/" + std::string(90, 'f');
  const TarIndex tar(folder.write(
      "a.tar", file("a.txt", "first") + file("./b/c.txt", "") +
                   entry({.name = "folder/", .size = "", .type = '5'}, "") +
                   entry({.name = "tail", .prefix = "some/prefix"}, "prefixed") +
                   entry({.name = "././@LongLink", .type = 'L', .magic = "ustar  "}, long_name + std::string(1, '\0')) +
                   entry({.name = "cut", .magic = "ustar  "}, std::string(1000, 'l')) +
                   entry({.name = "x", .type = 'x'}, pax("mtime", "1.5") + pax("path", "pax/\xC3\xA9")) +
                   file("y", "pax") + entry({.name = "hard", .type = '1', .link = "a.txt"}, "") +
                   entry({.name = "soft", .type = '2', .link = "a.txt"}, "") +
                   entry({.name = "old", .magic = std::string(8, '\0')}, "v7") + file("twice", "1") +
                   file("twice", "2") + end() + "anything"));
  EXPECT_EQ(tar.names(), (std::vector<std::string>{"a.txt", "b/c.txt", long_name, "hard", "old", "pax/\xC3\xA9",
                                                   "some/prefix/tail", "twice"}));
  EXPECT_EQ(text_of(tar.read("a.txt")), "first");
  EXPECT_EQ(text_of(tar.read("./a.txt")), "first");
  EXPECT_EQ(text_of(tar.read("hard")), "first");
  EXPECT_EQ(text_of(tar.read("b/c.txt")), "");
  EXPECT_EQ(text_of(tar.read("some/prefix/tail")), "prefixed");
  EXPECT_EQ(text_of(tar.read(long_name)), std::string(1000, 'l'));
  EXPECT_EQ(text_of(tar.read("pax/\xC3\xA9")), "pax");
  EXPECT_EQ(text_of(tar.read("twice")), "2");
  EXPECT_TRUE(tar.contains("./b/c.txt"));
  EXPECT_FALSE(tar.contains("soft"));
}

TEST(Tar, SizesMayBeBinaryOrInAPaxHeader) {
  const TemporaryFolder folder;
  const std::string binary = std::string("\x80\0\0\0\0\0\0\0\0\0\0\5", 12);
  const TarIndex tar(folder.write("a.tar", entry({.name = "a", .size = binary}, "12345") +
                                               entry({.name = "x", .type = 'x'}, pax("size", "3")) +
                                               entry({.name = "b", .size = octal(0, 11)}, "abc")));
  EXPECT_EQ(text_of(tar.read("a")), "12345");
  EXPECT_EQ(text_of(tar.read("b")), "abc");
}

TEST(Tar, ReadingChecksNameAndSize) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.tar", file("a", "12345") + end());
  const TarIndex tar(path);
  EXPECT_EQ(error_message<Error>([&] { tar.read("b\n"); }), path + ": has no file \"b\\x0a\"");
  EXPECT_EQ(error_message<Error>([&] { tar.read("a", 4); }), path + ": \"a\" has 5 bytes; expected at most 4");
  std::filesystem::resize_file(path, 514);
  EXPECT_EQ(error_message<Error>([&] { tar.read("a"); }), path + ": ends at byte 514; expected 3 more bytes");
}

TEST(Tar, HostileArchivesEndInAnErrorThatSaysWhy) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& bytes) {
    const std::string path = folder.write("a.tar", bytes);
    return error_message<Error>([&] { TarIndex tar(path); });
  };
  const auto expect = [&](const std::string& what, const std::string& bytes, const std::string& part) {
    EXPECT_NE(message(bytes).find(part), std::string::npos) << what << ": " << message(bytes);
  };
  std::string bad_sum = file("a", "12345");
  bad_sum[0] = 'b';
  expect("empty", "", "the archive is empty");
  expect("text", std::string(2000, 'x'), "byte 0: no tar header");
  expect("gzip", "\x1F\x8B" + std::string(1000, 'x'), "no tar header; expected an uncompressed tar");
  expect("checksum", bad_sum, "no tar header");
  expect("header cut short", file("a", "12345") + std::string(100, 'x'), "ends at byte 1124");
  expect("data cut short", file("a", std::string(600, 'x')).substr(0, 700), "goes beyond the end");
  expect("negative binary size", entry({.name = "a", .size = std::string(12, '\xFF')}, ""), "negative or huge");
  expect("negative size", entry({.name = "a", .size = "-0000000001"}, ""), "negative or huge");
  expect("binary size of 2^95", entry({.name = "a", .size = "\x80" + std::string(11, '\xFF')}, ""), "negative or huge");
  expect("binary size of 2^48", entry({.name = "a", .size = std::string("\x80\0\0\0\0\1\0\0\0\0\0\0", 12)}, ""),
         "goes beyond the end");
  expect("largest octal size", entry({.name = "a", .size = "77777777777"}, ""), "goes beyond the end");
  expect("size of letters", entry({.name = "a", .size = "hello"}, ""), "negative or huge");
  expect("huge long name", entry({.name = "a", .type = 'L'}, std::string(2'000'000, 'x')), "an extended header of");
  expect("long name cut short", entry({.name = "a", .size = "00000001000", .type = 'L'}, ""), "goes beyond the end");
  for (const auto* record : {"5", "5 a=b\n", "99 path=a\n", "0 path=a\n", "-9 path=a\n", "9 path=ab", "x path=a\n",
                             "99999999999999999999 path=a\n", "8 pathab\n"}) {
    expect(record, entry({.name = "a", .type = 'x'}, record), "a broken pax header");
  }
  for (const auto* size : {"-1", "x", "", "99999999999999999999"}) {
    expect(size, entry({.name = "a", .type = 'x'}, pax("size", size)), "a broken pax header");
  }
  expect("huge pax size", entry({.name = "a", .type = 'x'}, pax("size", "9223372036854775807")) + file("b", ""),
         "goes beyond the end");
  EXPECT_NE(error_message<Error>([&] { TarIndex tar("/dev/null"); }).find("no ordinary file"), std::string::npos);
}

TEST(Tar, RandomChangesNeverDoMoreThanThrow) {
  const TemporaryFolder folder;
  const std::string bytes = file("a", "12345") + entry({.name = "x", .type = 'x'}, pax("path", "long")) +
                            file("b", std::string(600, 'b')) + end();
  std::mt19937 random(4);
  for (int i = 0; i < 500; ++i) {
    std::string changed = bytes;
    const size_t block = random() % 4 * 512;
    changed[block + random() % 512] = static_cast<char>(random());
    std::string header = changed.substr(block, 512);
    put_checksum(header);
    put(changed, block, header);
    try {
      const TarIndex tar(folder.write("a.tar", changed));
      for (const auto& name : tar.names()) tar.read(name);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ramify::io
