// Records of files, read and compiled in worker threads, delivered in the order of the files. Memory is bounded by a
// few chunks; what is delivered does not depend on the number of threads. Blank lines are passed over.
//
//   SignalStream stream({"data.jsonl"}, compiler, {.threads = 2});
//   for (RecordChunk chunk; stream.next(chunk);)
//     for (Record& record : chunk.records) if (record.error.empty()) use(record.signal);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "signal/compiler.h"
#include "signal/inference.h"
#include "signal/signal.h"

namespace ramify::signal {

struct Record {
  int64_t file = 0;   // which of the files
  int64_t line = 0;   // from 1
  int64_t bytes = 0;  // of the line
  Signal signal;      // if there is no error
  std::string error;  // "FILE:LINE: ..."; empty: none
  std::string json;   // where asked for
};

struct RecordChunk {
  std::vector<Record> records;  // none: another process compiles it
};

struct StreamOptions {
  int threads = 0;              // 0: one a core
  bool keep_json = false;       // Record::json
  int64_t chunk_records = 64;   // at most; chunks end early after some megabytes
  int64_t rank = 0, ranks = 1;  // of so many processes that take turns: only every ranks-th chunk is compiled
};

// Where text vectors are computed records take their time: smaller chunks show progress and end in time.
inline constexpr int64_t kChunkOfEncodedRecords = 8;

class SignalStream {
 public:
  SignalStream(std::vector<std::string> files, std::shared_ptr<const Compiler> compiler, StreamOptions options = {});
  ~SignalStream();  // stops the workers

  // False at the end. io::Error for a file that cannot be read any further: that is not a matter of one record.
  bool next(RecordChunk& chunk);

  ReadProgress progress() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

// The records of some lines (ascending) of one file, say to compile them once more with labels.
std::vector<Record> read_lines(const std::string& file, std::span<const int64_t> lines, const Compiler& compiler);

}  // namespace ramify::signal
