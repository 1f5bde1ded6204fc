// Running text as sequences: every token once, special ones in front of each.
#include "train/token_text.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <numeric>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"

namespace ramify::train {
namespace {

using testing::error_message;

std::vector<int32_t> counted(int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

std::vector<int64_t> ids_of(const Sequences& sequences, const std::vector<int64_t>& numbers) {
  const at::Tensor ids = sequences.pack(numbers, 64, at::kCPU).ids();
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

TEST(Sequences, HaveEveryTokenOnceAndSpecialOnesInFront) {
  const Sequences sequences(counted(7), {1}, 4);
  ASSERT_EQ(sequences.size(), 3);
  EXPECT_EQ(sequences.length(0), 4);
  EXPECT_EQ(sequences.length(2), 2);
  EXPECT_EQ(ids_of(sequences, {0}), (std::vector<int64_t>{1, 100, 101, 102}));
  EXPECT_EQ(ids_of(sequences, {2, 1}), (std::vector<int64_t>{1, 106, 1, 103, 104, 105}));
  const models::PackedTexts batch = sequences.pack(std::vector<int64_t>{2, 1}, 64, at::kCPU);
  EXPECT_EQ(std::vector<int64_t>(batch.begin().begin(), batch.begin().end()), (std::vector<int64_t>{0, 2, 6}));
  EXPECT_EQ(batch.positions()[2].item<int64_t>(), 0);
}

TEST(Sequences, WithoutSpecialTokensASingleLastTokenIsLeftOut) {
  EXPECT_EQ(Sequences(counted(8), {}, 4).size(), 2);
  EXPECT_EQ(Sequences(counted(9), {}, 4).size(), 2);
  EXPECT_EQ(Sequences(counted(10), {}, 4).size(), 3);
  EXPECT_EQ(Sequences(counted(1), {}, 4).size(), 0);
  EXPECT_EQ(Sequences(counted(1), {1}, 4).size(), 1);
  EXPECT_EQ(Sequences({}, {1}, 4).size(), 0);
}

TEST(Sequences, NeedRoomForTheText) {
  EXPECT_NE(error_message([] { Sequences(counted(3), {1, 2}, 2); }).find("--context 2"), std::string::npos);
}

class ReadTokens : public ::testing::Test {
 protected:
  std::vector<int32_t> read(const std::vector<std::string>& names, int workers = 1) const {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back(folder_ / name);
    return read_tokens(files, *tokenizer_, {.workers = workers});
  }

  testing::TemporaryFolder folder_;
  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      text::Tokenizer::word(text::Vocabulary({"a", "b", "c", "\xEF\xBF\xBD"}));
};

TEST_F(ReadTokens, OfPlainTextAndRecordsOneBehindTheOther) {
  folder_.write("one.txt", "a b\n\nc\n");
  folder_.write("two.jsonl", "{\"text\": \"c b\"}\n{\"text\": \"a\"}\n");
  const std::vector<int32_t> one = read({"one.txt"}), two = read({"two.jsonl"});
  EXPECT_EQ(one.size(), 3U);
  EXPECT_EQ(two.size(), 3U);
  EXPECT_EQ(two, (std::vector<int32_t>{one[2], one[1], one[0]}));
  std::vector<int32_t> both = one;
  both.insert(both.end(), two.begin(), two.end());
  EXPECT_EQ(read({"one.txt", "two.jsonl"}), both);
}

TEST_F(ReadTokens, TheNumberOfThreadsChangesNothing) {
  std::string text;
  for (int i = 0; i < 400000; ++i) text += i % 7 == 0 ? "a\n" : i % 3 == 0 ? "b " : "c ";
  folder_.write("long.txt", text);
  const std::vector<int32_t> ids = read({"long.txt"});
  EXPECT_EQ(ids.size(), 400000U);
  EXPECT_EQ(read({"long.txt"}, 3), ids);
}

TEST_F(ReadTokens, StopsAtALimit) {
  folder_.write("one.txt", "a b c a\n");
  folder_.write("two.txt", "b b\n");
  const std::vector<std::string> files = {folder_ / "one.txt", folder_ / "two.txt"};
  EXPECT_EQ(read_tokens(files, *tokenizer_, {.limit = 3}).size(), 3U);
  EXPECT_EQ(read_tokens(files, *tokenizer_, {.limit = 5}).size(), 5U);
  EXPECT_EQ(read_tokens(files, *tokenizer_, {.limit = 50}).size(), 6U);
}

TEST_F(ReadTokens, BrokenBytesCountAsOneLetter) {
  folder_.write("broken.txt", "a \xff b\n");
  folder_.write("whole.txt", "a \xEF\xBF\xBD b\n");
  EXPECT_EQ(read({"broken.txt"}), read({"whole.txt"}));
}

TEST_F(ReadTokens, FilesWithoutTextAreNamed) {
  folder_.write("empty.txt", "");
  folder_.write("blank.txt", "\n\n");
  for (const char* name : {"empty.txt", "blank.txt", "missing.txt"}) {
    EXPECT_NE(error_message<io::Error>([&] { read({name}); }).find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace ramify::train
