#include "signal/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "io/error.h"
#include "signal/stream.h"

namespace ramify::signal {

Dataset Dataset::read(const std::vector<std::string>& files, std::shared_ptr<const Schema> schema,
                      const DatasetOptions& options) {
  Dataset dataset;
  dataset.schema_ = schema;
  dataset.files_ = files;
  StreamOptions how{.threads = options.threads};
  if (options.compiler.text_vectors) how.chunk_records = kChunkOfEncodedRecords;
  SignalStream stream(files, std::make_shared<const Compiler>(std::move(schema), options.compiler), how);
  for (RecordChunk chunk; stream.next(chunk);) {
    for (Record& record : chunk.records) dataset.add(record, options.on_bad);
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
