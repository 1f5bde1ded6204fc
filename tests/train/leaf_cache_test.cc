// The cache of leaf vectors: what it gives back, how much memory it takes, and files that change while they are in use.
#include "train/leaf_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "io/safetensors.h"
#include "io/sha256.h"

namespace ramify::train {
namespace {

using testing::error_message;
using testing::TemporaryFolder;

constexpr int64_t kWidth = 64;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kMuch = int64_t{1} << 40;
const signal::LeafEncoding kEncoding = {
    .model = "model", .level = signal::LeafLevel::token, .width = kWidth, .sha256 = "of the model"};

std::string key(int64_t piece) {
  return io::sha256_hex(std::to_string(piece));
}

std::vector<float> rows(int64_t piece, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count * kWidth));
  std::iota(values.begin(), values.end(), static_cast<float>(piece));
  return values;
}

std::vector<float> not_known() {
  throw std::logic_error("asked for what is in the file");
}

// A file with the given pieces, `count` rows each.
std::string write_cache(const std::string& file, int64_t pieces, int64_t count) {
  LeafCache cache(kEncoding, file, 0);
  for (int64_t i = 0; i < pieces; ++i) cache.rows(key(i), [&] { return rows(i, count); });
  cache.close();
  return file;
}

// Memory of this process that no file stands for.
int64_t own_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  throw std::runtime_error("/proc/self/status has no RssAnon");
}

TEST(LeafCache, GivesWhatAFileHasWithoutComputing) {
  const TemporaryFolder folder;
  write_cache(folder / "cache", 20, 3);
  LeafCache cache(kEncoding, folder / "cache", 0);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(cache.rows(key(i), not_known), rows(i, 3));
  EXPECT_EQ(cache.counts().asked, 20);
  EXPECT_EQ(cache.counts().computed, 0);
}

TEST(LeafCache, WritesWhatAFileHadAndWhatIsNew) {
  const TemporaryFolder folder;
  write_cache(folder / "grown", 4, 2);
  write_cache(folder / "grown", 9, 2);
  write_cache(folder / "at once", 9, 2);
  EXPECT_EQ(folder.read("grown"), folder.read("at once"));
}

TEST(LeafCache, TakesPiecesThatEndInAnotherPart) {
  const TemporaryFolder folder;
  const std::string keys = key(0) + key(1);
  const std::vector<int64_t> begin = {0, 1, 4};
  const std::vector<float> all = rows(0, 4), first(all.begin(), all.begin() + 100), last(all.begin() + 100, all.end());
  const auto sum = [](const auto& values) { return io::sha256_hex(std::as_bytes(std::span(values))); };
  const io::TensorBytes tensors[] = {{"keys", "U8", {2, 64}, std::as_bytes(std::span(keys))},
                                     {"begin", "I64", {3}, std::as_bytes(std::span(begin))},
                                     {"rows.000000", "F32", {100}, std::as_bytes(std::span(first))},
                                     {"rows.000001", "F32", {156}, std::as_bytes(std::span(last))}};
  io::write_safetensors(folder / "cache", tensors,
                        {{"model", kEncoding.sha256},
                         {"level", "token"},
                         {"sha256", io::sha256_hex(sum(keys) + sum(begin) + sum(first) + sum(last))}});
  LeafCache cache(kEncoding, folder / "cache", 0);
  EXPECT_EQ(cache.rows(key(0), not_known), std::vector<float>(all.begin(), all.begin() + kWidth));
  EXPECT_EQ(cache.rows(key(1), not_known), std::vector<float>(all.begin() + kWidth, all.end()));
}

TEST(LeafCache, KeepsNoCopyOfAFileInMemory) {
  const TemporaryFolder folder;
  constexpr int64_t kPieces = 160, kRows = kMiB / (kWidth * 4);  // a MiB each
  write_cache(folder / "cache", kPieces, kRows);
  const int64_t before = own_memory();
  LeafCache cache(kEncoding, folder / "cache", 0);
  EXPECT_LT(own_memory() - before, kPieces * kMiB / 2);
  for (int64_t i = 0; i < kPieces; ++i) cache.rows(key(i), not_known);
  EXPECT_LT(own_memory() - before, kPieces * kMiB / 2);
}

// What lies between blocks that stay would otherwise not be given back.
TEST(LeafCache, GivesMemoryBackToTheSystem) {
  constexpr int64_t kPieces = 1024, kRows = kMiB / 16 / (kWidth * 4);  // 64 KiB each
  LeafCache cache(kEncoding, "", kMuch);
  std::vector<std::vector<float>> records;
  for (int64_t i = 0; i < kPieces; ++i) records.push_back(cache.rows(key(i), [&] { return rows(i, kRows); }));
  const int64_t before = own_memory();
  cache.close();
  EXPECT_LT(own_memory(), before - kPieces * kMiB / 16 * 3 / 4);
}

TEST(LeafCache, GoesOnWithTheFileThatItOpened) {
  const TemporaryFolder folder;
  write_cache(folder / "cache", 5, 3);
  LeafCache cache(kEncoding, folder / "cache", 0);
  std::filesystem::rename(write_cache(folder / "other", 1, 1), folder / "cache");
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(cache.rows(key(i), not_known), rows(i, 3));
  std::filesystem::remove(folder / "cache");
  cache.close();
  LeafCache again(kEncoding, folder / "cache", 0);
  EXPECT_EQ(again.rows(key(4), not_known), rows(4, 3));
}

TEST(LeafCache, FileThatIsCutShortInUseIsAnError) {
  const TemporaryFolder folder;
  write_cache(folder / "cache", 50, 100);
  LeafCache cache(kEncoding, folder / "cache", 0);
  std::filesystem::resize_file(folder / "cache", 10000);
  const auto read_all = [&] {
    for (int64_t i = 0; i < 50; ++i) cache.rows(key(i), not_known);
  };
  EXPECT_TRUE(error_message<io::Error>(read_all).starts_with(folder / "cache" + ": ends at byte"));
  EXPECT_EQ(error_message<io::Error>([&] { cache.close(); }),
            folder / "cache" + ": was changed while it was read; begin again");
}

TEST(LeafCache, FileThatIsOverwrittenInUseIsAnErrorAndStaysAsItIs) {
  const TemporaryFolder folder;
  write_cache(folder / "cache", 5, 3);
  LeafCache cache(kEncoding, folder / "cache", 0);
  cache.rows(key(5), [] { return rows(5, 3); });
  const std::string changed = folder.read("cache") + "x";
  folder.write("cache", changed);
  EXPECT_EQ(error_message<io::Error>([&] { cache.close(); }),
            folder / "cache" + ": was changed while it was read; begin again");
  EXPECT_EQ(folder.read("cache"), changed);
}

}  // namespace
}  // namespace ramify::train
