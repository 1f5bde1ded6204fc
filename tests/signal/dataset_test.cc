// Files of records: order, bad records, and that threads change nothing.
#include "signal/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "generators/error_message.h"
#include "generators/temporary_folder.h"
#include "io/error.h"
#include "signal/signal_case.h"
#include "signal/stream.h"

namespace ramify::signal {
namespace {

using testing::error_message;
using testing::SharedSchema;
using testing::TemporaryFolder;
using testing::text_of;
using Strings = std::vector<std::string>;

std::string record(int i) {
  std::string text;
  for (int w = 0; w <= i % 7; ++w) text += "word" + std::to_string((i * 7 + w) % 50) + " ";
  return R"({"t": ")" + text + R"(", "n": )" + std::to_string(i) + R"(, "y": ")" + (i % 2 == 0 ? "a" : "b") + "\"}\n";
}

std::string records(int begin, int end) {
  std::string lines;
  for (int i = begin; i < end; ++i) lines += record(i);
  return lines;
}

SharedSchema infer(const Strings& files, const SchemaOptions& options = {.target = "y"}) {
  return std::make_shared<const Schema>(infer_schema(files, options));
}

// Everything about a data set in one string.
std::string contents(const Dataset& dataset) {
  std::string text;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    text += std::filesystem::path(dataset.file(i)).filename().string() + ":" + std::to_string(dataset.line(i)) + " " +
            text_of(dataset[i], dataset.schema()) + "\n";
  }
  for (const std::string& message : dataset.bad().messages) text += message + "\n";
  return text + std::to_string(dataset.bad().count);
}

TEST(Dataset, IsTheSameWithAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", records(0, 700) + "broken\n\n" + records(700, 750)),
                         folder.write("b.jsonl", "\r\n" + records(750, 1001))};
  const SharedSchema schema = infer(files, {.target = "y", .on_bad = OnBad::skip});
  Strings results;
  for (const int threads : {1, 2, 5}) {
    const Dataset dataset = Dataset::read(files, schema, {.on_bad = OnBad::skip, .threads = threads});
    EXPECT_EQ(dataset.size(), 1001);
    results.push_back(contents(dataset));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NE(results[0].find("a.jsonl:752 "), std::string::npos);
  EXPECT_NE(results[0].find("b.jsonl:2 "), std::string::npos);
}

TEST(Dataset, FailsWithTheFirstBadRecord) {
  const TemporaryFolder folder;
  const std::string good = folder.write("good.jsonl", records(0, 10));
  const std::string bad =
      folder.write("bad.jsonl", records(0, 300) + "{\"n\": \"x\", \"y\": \"a\"}\n" + records(0, 90) + "{");
  const SharedSchema schema = infer({good});
  for (const int threads : {1, 4}) {
    EXPECT_EQ(error_message<io::Error>([&] {
                Dataset::read({good, bad}, schema, {.threads = threads});
              }),
              bad + ":301: field n is a string, the schema says number");
  }
}

TEST(Dataset, CountsWhatItSkips) {
  const TemporaryFolder folder;
  std::string lines = records(0, 10);
  for (int i = 0; i < 8; ++i) lines += "[" + std::to_string(i) + "\n" + record(i);
  const std::string file = folder.write("a.jsonl", lines);
  const Dataset dataset =
      Dataset::read({file}, infer({file}, {.target = "y", .on_bad = OnBad::skip}), {.on_bad = OnBad::skip});
  EXPECT_EQ(dataset.size(), 18);
  EXPECT_EQ(dataset.bad().count, 8);
  ASSERT_EQ(dataset.bad().messages.size(), BadRecords::kMaxMessages);
  EXPECT_EQ(dataset.bad().messages[1].substr(0, file.size() + 14), file + ":13: not JSON:");
}

TEST(Dataset, CountsWhatIsCutOff) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", records(0, 14));
  const Dataset dataset = Dataset::read({file}, infer({file}, {.target = "y", .max_leaves = 4}));
  EXPECT_EQ(dataset.num_truncated(), 8);  // 4 to 7 words and the number
  EXPECT_EQ(dataset.num_leaves(), 2 * (2 + 3 + 4 + 4 * 4));
}

TEST(Dataset, SaysWhatIsWrongWithFiles) {
  const TemporaryFolder folder;
  const SharedSchema schema = infer({folder.write("good.jsonl", records(0, 3))});
  const auto message = [&](const std::string& file) {
    const std::string reading = error_message<io::Error>([&] { Dataset::read({file}, schema); });
    EXPECT_EQ(reading, error_message<io::Error>([&] { infer({file}); }));
    EXPECT_NE(reading.find(file), std::string::npos) << reading;
    return reading;
  };
  EXPECT_EQ(message(folder.write("empty.jsonl", "")), folder / "empty.jsonl" + ": no records");
  EXPECT_EQ(message(folder.write("blank.jsonl", "\n \n\t\n")), folder / "blank.jsonl" + ": no records");
  EXPECT_EQ(error_message<io::Error>([&] {
              Dataset::read({folder / "good.jsonl", folder / "empty.jsonl"}, schema);
            }),
            folder / "empty.jsonl" + ": no records");
  message(folder / "missing.jsonl");
  message(folder.path());
  message(folder.write("broken.jsonl.zst", "\x28\xB5\x2F\xFDgarbage"));
}

TEST(Dataset, AllBadIsAnError) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", "{\n[\n");
  const SharedSchema schema = infer({folder.write("good.jsonl", records(0, 3))});
  const std::string reading = error_message<io::Error>([&] { Dataset::read({file}, schema, {.on_bad = OnBad::skip}); });
  EXPECT_EQ(reading.substr(0, 36 + file.size()), "all records are bad; the first: " + file + ":1: ");
  EXPECT_EQ(error_message<io::Error>([&] { infer({file}, {.target = "y", .on_bad = OnBad::skip}); }), reading);
}

TEST(Dataset, ReportsProgress) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", records(0, 500));
  std::vector<ReadProgress> seen;
  Dataset::read({file}, infer({file}),
                {.on_progress = [&](const ReadProgress& progress) { seen.push_back(progress); }});
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().records, 500);
  EXPECT_EQ(seen.back().bytes, seen.back().bytes_total);
  EXPECT_EQ(seen.back().bytes_total, static_cast<int64_t>(std::filesystem::file_size(file)));
}

TEST(SignalStream, DeliversErrorsInTheirPlace) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", record(0) + "nonsense\n" + record(1));
  const auto compiler = std::make_shared<const Compiler>(infer({folder.write("good.jsonl", records(0, 3))}));
  SignalStream stream({file}, compiler, {.threads = 3, .keep_json = true, .chunk_records = 2});
  std::vector<Record> all;
  for (RecordChunk chunk; stream.next(chunk);) {
    for (Record& one : chunk.records) all.push_back(std::move(one));
  }
  ASSERT_EQ(all.size(), 3);
  EXPECT_TRUE(all[0].error.empty());
  EXPECT_EQ(all[1].error.substr(0, file.size() + 4), file + ":2: ");
  EXPECT_EQ(all[2].line, 3);
  EXPECT_EQ(all[2].json + "\n", record(1));
  EXPECT_EQ(all[2].bytes, static_cast<int64_t>(record(1).size()) - 1);
}

TEST(SignalStream, DeliversWhatCameBeforeAnError) {
  const TemporaryFolder folder;
  const Strings files = {folder.write("a.jsonl", records(0, 200)), folder / "missing.jsonl"};
  const auto compiler = std::make_shared<const Compiler>(infer({files[0]}));
  for (const int threads : {1, 4}) {
    SignalStream stream(files, compiler, {.threads = threads});
    size_t count = 0;
    EXPECT_THROW(
        {
          for (RecordChunk chunk; stream.next(chunk);) count += chunk.records.size();
        },
        io::Error);
    EXPECT_EQ(count, 200);
  }
}

TEST(SignalStream, MayBeLeftBeforeItsEnd) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", records(0, 5000));
  const auto compiler = std::make_shared<const Compiler>(infer({file}));
  SignalStream stream({file}, compiler, {.threads = 3});
  RecordChunk chunk;
  EXPECT_TRUE(stream.next(chunk));
}

TEST(SignalStream, LinesThatAreTooLongAreBadRecords) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", record(0) + "\"" + std::string(65 << 20, 'x') + "\"\n" + record(1));
  const Dataset dataset =
      Dataset::read({file}, infer({file}, {.target = "y", .on_bad = OnBad::skip}), {.on_bad = OnBad::skip});
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.line(1), 3);
  EXPECT_EQ(dataset.bad().messages[0].substr(0, file.size() + 3), file + ":2:");
}

TEST(ReadLines, ReadsRecordsAgain) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.jsonl", "\n" + records(0, 5));
  const Compiler compiler(infer({file}), {.labels = Labels::all});
  const std::vector<Record> lines = read_lines(file, std::vector<int64_t>{2, 4}, compiler);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[1].line, 4);
  EXPECT_EQ(lines[1].json + "\n", record(2));
  EXPECT_FALSE(lines[1].signal.labels.empty());
  EXPECT_EQ(error_message<io::Error>([&] { read_lines(file, std::vector<int64_t>{1}, compiler); }),
            file + ":1: no record there");
  EXPECT_EQ(error_message<io::Error>([&] {
              read_lines(file, std::vector<int64_t>{3, 9}, compiler);
            }),
            file + ":9: no record there");
}

}  // namespace
}  // namespace ramify::signal
