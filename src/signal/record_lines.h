// The lines of several files, one after the other, that hold a record: blank ones are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/lines.h"
#include "signal/inference.h"

namespace ramify::signal {

struct RecordLine {
  std::string json;
  std::string error;  // "FILE:LINE: ..." for a line that is too long; empty: none
  int64_t file = 0;   // which of the files
  int64_t line = 0;   // from 1
};

class RecordLines {
 public:
  explicit RecordLines(std::vector<std::string> files);

  // False at the end. io::Error for a file that cannot be read, or that has no record.
  bool next(RecordLine& line);
  bool is_ready() const { return !reader_ || reader_->is_ready(); }  // next() would not wait for a pipe

  const std::string& name(int64_t file) const { return names_[static_cast<size_t>(file)]; }  // for messages
  const std::string& folder(int64_t file) const { return folders_[static_cast<size_t>(file)]; }
  ReadProgress progress() const;

 private:
  std::vector<std::string> files_, names_, folders_;
  std::optional<io::LineReader> reader_;
  size_t file_ = 0;
  int64_t records_ = 0, records_of_file_ = 0;
  int64_t bytes_before_ = 0, bytes_total_ = 0;
};

}  // namespace ramify::signal
