// All records of some files in memory, compiled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "signal/compiler.h"
#include "signal/inference.h"
#include "signal/schema.h"
#include "signal/shares.h"
#include "signal/signal.h"
#include "signal/stream.h"

namespace ramify::signal {

struct DatasetOptions {
  CompilerOptions compiler;
  OnBad on_bad = OnBad::fail;
  int threads = 0;  // 0: one a core
  Member member;    // of several that compile a part each, and get the parts of the others
  std::function<void(const ReadProgress&)> on_progress;
};

struct BadRecords {
  static constexpr size_t kMaxMessages = 5;

  int64_t count = 0;
  std::vector<std::string> messages;  // "FILE:LINE: ..." of the first ones
};

// The same whatever the number of threads and processes.
class Dataset {
 public:
  // io::Error: a bad record (its message is "FILE:LINE: ...") unless those are skipped, an unreadable file, or no
  // record at all; in all processes, if it is one in one of them.
  static Dataset read(const std::vector<std::string>& files, std::shared_ptr<const Schema> schema,
                      const DatasetOptions& options = {});

  const std::shared_ptr<const Schema>& schema() const { return schema_; }
  int64_t size() const { return static_cast<int64_t>(signals_.size()); }
  std::vector<int64_t> all_records() const;  // 0, 1, ...
  const Signal& operator[](int64_t record) const { return signals_[static_cast<size_t>(record)]; }
  const std::string& file(int64_t record) const;
  int64_t line(int64_t record) const { return lines_[static_cast<size_t>(record)]; }

  int64_t num_leaves() const { return num_leaves_; }
  int64_t num_truncated() const { return num_truncated_; }  // records with more than Schema::max_leaves
  const BadRecords& bad() const { return bad_; }

 private:
  void add(Record& record, OnBad on_bad);

  std::shared_ptr<const Schema> schema_;
  std::vector<std::string> files_;
  std::vector<int64_t> file_begin_;  // [files + 1]: records of each file
  std::vector<Signal> signals_;
  std::vector<int64_t> lines_;
  int64_t num_leaves_ = 0;
  int64_t num_truncated_ = 0;
  BadRecords bad_;
};

}  // namespace ramify::signal
