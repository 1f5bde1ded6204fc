// Work that several processes share: nothing is lost, nothing done twice, and all come to the same.
#include "signal/shares.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "generators/thread_group.h"
#include "io/error.h"
#include "signal/dataset.h"
#include "signal/loader.h"
#include "signal/record_bytes.h"
#include "signal/signal_case.h"

namespace ramify::signal {
namespace {

using testing::error_message;
using testing::Exchange;
using testing::run_members;
using testing::SharedSchema;
using testing::TemporaryFolder;
using testing::text_of;
using Rows = std::vector<int64_t>;
using Strings = std::vector<std::string>;

RC_GTEST_PROP(SharesLaws, EveryItemIsTakenOnceAndLoadsDifferByAtMostOneItem, ()) {
  const auto sizes = *rc::gen::container<Rows>(rc::gen::inRange<int64_t>(1, 1000));
  const auto ranks = *rc::gen::inRange<int64_t>(1, 9);
  Rows all, loads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Rows own = balanced_share(sizes, rank, ranks);
    RC_ASSERT(std::ranges::is_sorted(own));
    loads.push_back(0);
    for (const int64_t item : own) loads.back() += sizes[static_cast<size_t>(item)];
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::sort(all);
  Rows every(sizes.size());
  std::iota(every.begin(), every.end(), 0);
  RC_ASSERT(all == every);
  const auto [least, most] = std::ranges::minmax(loads);
  RC_ASSERT(most - least <= (sizes.empty() ? 0 : std::ranges::max(sizes)));
}

std::string line_of(int i) {
  std::string words;
  for (int w = 0; w <= i % 11; ++w) words += "word" + std::to_string((i * 7 + w) % 50) + " ";
  return R"({"t": ")" + words + R"(", "n": )" + std::to_string(i) + R"(, "v": {"$vector": [1, )" + std::to_string(i) +
         R"(]}, "y": ")" + (i % 2 == 0 ? "a" : "b") + "\"}\n";
}

std::string lines_of(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += i == 300 ? "broken\n" : line_of(i);
  return lines;
}

Strings contents_of(const Dataset& data) {
  Strings texts = data.bad().messages;
  for (int64_t i = 0; i < data.size(); ++i) {
    texts.push_back(std::to_string(data.line(i)) + " " + text_of(data[i], data.schema()));
  }
  return texts;
}

SharedSchema schema_of_files(const Strings& files) {
  return std::make_shared<const Schema>(infer_schema(files, {.target = "y", .on_bad = OnBad::skip}));
}

// What each of `size` members reads of `files_of(rank)`.
template <class FilesOf>
std::vector<Dataset> read_together(int64_t size, const FilesOf& files_of, const SharedSchema& schema, OnBad on_bad) {
  Exchange<std::string> exchange(size);
  std::vector<Dataset> read(static_cast<size_t>(size));
  run_members(size, [&](int64_t rank) {
    const Member member{.rank = rank, .size = size, .gather = [&exchange, rank](std::string own) {
                          return exchange.gather(rank, std::move(own));
                        }};
    read[static_cast<size_t>(rank)] = Dataset::read(files_of(rank), schema, {.on_bad = on_bad, .member = member});
  });
  return read;
}

TEST(SharedReading, GivesEveryProcessAllRecordsInTheirOrder) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", lines_of(700)), folder.write("b.jsonl", lines_of(7))};
  const SharedSchema schema = schema_of_files(files);
  const Strings wanted = contents_of(Dataset::read(files, schema, {.on_bad = OnBad::skip}));
  for (const int64_t size : {2, 3, 40}) {  // also more processes than chunks
    for (const Dataset& data : read_together(
             size, [&](int64_t) { return files; }, schema, OnBad::skip)) {
      EXPECT_EQ(contents_of(data), wanted);
      EXPECT_EQ(data.file(data.size() - 1), files[1]);
      EXPECT_EQ(data.bad().count, 1);
    }
  }
}

TEST(SharedReading, EndsInAllProcessesWithTheBadRecordOfOne) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", lines_of(700))};
  const SharedSchema schema = schema_of_files(files);
  const std::string message = error_message<io::Error>([&] {
    read_together(
        3, [&](int64_t) { return files; }, schema, OnBad::fail);
  });
  EXPECT_NE(message.find("a.jsonl:301: "), message.npos) << message;
}

TEST(SharedReading, EndsInAllProcessesWhenOneHasOtherData) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", lines_of(200))}, shorter = {folder.write("b.jsonl", lines_of(100))};
  const SharedSchema schema = schema_of_files(files);
  EXPECT_NE(error_message<io::Error>([&] {
              read_together(
                  2, [&](int64_t r) { return r == 0 ? files : shorter; }, schema, OnBad::skip);
            }).find("the processes do not find the same records"),
            std::string::npos);
}

TEST(SharedBatches, TogetherAreTheBatchesOfOneProcess) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", lines_of(300))};
  const Dataset data = Dataset::read(files, schema_of_files(files), {.on_bad = OnBad::skip});
  const auto loader = [&](int64_t rank, int64_t ranks, Sharing sharing) {
    return Loader(data, {.batch_records = 7, .seed = 3, .rank = rank, .ranks = ranks, .sharing = sharing});
  };
  const auto whole = loader(0, 1, Sharing::records).batches(5);
  std::vector<Rows> by_records(whole.size()), by_batches(whole.size());
  for (int64_t rank = 0; rank < 3; ++rank) {
    Loader some = loader(rank, 3, Sharing::records), others = loader(rank, 3, Sharing::batches);
    EXPECT_EQ(some.batches(5), whole);
    some.start(5);
    for (size_t b = 0; b < whole.size(); ++b) {
      const Rows own = some.next()->records;
      by_records[b].insert(by_records[b].end(), own.begin(), own.end());
    }
    EXPECT_FALSE(some.next());
    others.start(5);
    for (size_t b = static_cast<size_t>(rank); b < whole.size(); b += 3) by_batches[b] = others.next()->records;
    EXPECT_FALSE(others.next());
  }
  EXPECT_EQ(by_batches, whole);
  for (size_t b = 0; b < whole.size(); ++b) EXPECT_TRUE(std::ranges::is_permutation(by_records[b], whole[b]));
}

TEST(SharedBatches, AProcessWithoutPartHasAnEmptyBatch) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", lines_of(3))};
  const Dataset data = Dataset::read(files, schema_of_files(files));
  int64_t empty = 0;
  for (int64_t rank = 0; rank < 5; ++rank) {
    Loader loader(data, {.batch_records = 8, .rank = rank, .ranks = 5});
    loader.start(0);
    empty += loader.next()->records.empty();
    EXPECT_FALSE(loader.next());
  }
  EXPECT_EQ(empty, 2);
}

TEST(RecordBytes, RefuseWhatIsCutOff) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", line_of(1) + line_of(2));
  const SharedSchema schema = schema_of_files({file});
  SignalStream stream({file}, std::make_shared<const Compiler>(schema, CompilerOptions{}));
  RecordChunk chunk;
  ASSERT_TRUE(stream.next(chunk));
  const std::string bytes = to_bytes(chunk);
  ASSERT_EQ(chunk_from_bytes(bytes).records.size(), 2U);
  for (size_t size = bytes.size() / 2 + 1; size < bytes.size(); ++size) {
    EXPECT_THROW(chunk_from_bytes(bytes.substr(0, size)), io::Error) << size;
  }
}

}  // namespace
}  // namespace ramify::signal
