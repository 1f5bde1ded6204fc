#include "signal/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "io/error.h"
#include "signal/record_bytes.h"
#include "signal/stream.h"

namespace ramify::signal {
namespace {

// What a process says of a round: how it went, how many of the round's chunks it found, and its own.
constexpr char kFine = '+', kFailed = '!';

// The chunks of one round in their order, one a process; false at the end of the files.
bool next_round(SignalStream& stream, const Member& member, std::vector<RecordChunk>& round) {
  round.assign(1, {});
  if (member.size == 1) return stream.next(round.front());
  int64_t found = 0;
  std::string said(1, kFine);
  try {
    RecordChunk own;
    for (RecordChunk chunk; found < member.size && stream.next(chunk); ++found) {
      if (found == member.rank) own = std::move(chunk);
    }
    said += std::to_string(found) + ' ' + to_bytes(own);
  } catch (const io::Error& error) {
    said = kFailed + std::string(error.what());
  }
  const std::vector<std::string> all = member.gather(std::move(said));
  round.clear();
  for (const std::string& one : all) {
    if (one.front() == kFailed) throw io::Error(one.substr(1));
    const size_t head = one.find(' ') + 1;
    if (one.compare(0, head, all.front(), 0, head) != 0) {
      throw io::Error("the processes do not find the same records; is the data the same for all of them?");
    }
    round.push_back(chunk_from_bytes(std::string_view(one).substr(head)));
  }
  return found > 0;
}

}  // namespace

Dataset Dataset::read(const std::vector<std::string>& files, std::shared_ptr<const Schema> schema,
                      const DatasetOptions& options) {
  Dataset dataset;
  dataset.schema_ = schema;
  dataset.files_ = files;
  const Member& member = options.member;
  StreamOptions how{.threads = options.threads, .rank = member.rank, .ranks = member.size};
  if (options.compiler.text_vectors) how.chunk_records = kChunkOfEncodedRecords;
  SignalStream stream(files, std::make_shared<const Compiler>(std::move(schema), options.compiler), how);
  for (std::vector<RecordChunk> round; next_round(stream, member, round);) {
    for (RecordChunk& chunk : round) {
      for (Record& record : chunk.records) dataset.add(record, options.on_bad);
    }
    if (options.on_progress) options.on_progress(stream.progress());
  }
  dataset.file_begin_.resize(files.size() + 1, dataset.size());
  if (dataset.size() > 0) return dataset;
  throw io::Error(fmt::format("all records are bad; the first: {}", dataset.bad_.messages.front()));
}

void Dataset::add(Record& record, OnBad on_bad) {
  if (!record.error.empty()) {
    if (on_bad == OnBad::fail) throw io::Error(record.error);
    if (bad_.messages.size() < BadRecords::kMaxMessages) bad_.messages.push_back(record.error);
    ++bad_.count;
    return;
  }
  file_begin_.resize(static_cast<size_t>(record.file) + 1, size());
  num_leaves_ += record.signal.num_leaves();
  num_truncated_ += record.signal.truncated;
  signals_.push_back(std::move(record.signal));
  lines_.push_back(record.line);
}

std::vector<int64_t> Dataset::all_records() const {
  std::vector<int64_t> records(signals_.size());
  std::iota(records.begin(), records.end(), 0);
  return records;
}

const std::string& Dataset::file(int64_t record) const {
  const auto after = std::upper_bound(file_begin_.begin(), file_begin_.end(), record);
  return files_[static_cast<size_t>(after - file_begin_.begin() - 1)];
}

}  // namespace ramify::signal
