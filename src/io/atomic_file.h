// Files that are either whole or not there: written under a temporary name in the same folder, flushed, renamed. What
// is no regular file (a pipe, a device) is never replaced: it is written to as the bytes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/error.h"

namespace ramify::io {

// A file being written. Until commit(), `path` keeps what it had; without commit(), the temporary file is removed. Of a
// symbolic link, the file that it leads to is written. Errors name `path`.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);  // Error with the system's reason, e.g. a full disk
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  std::string path_;       // as the caller calls it
  std::string target_;     // without links
  std::string temporary_;  // empty: written straight
  int descriptor_ = -1;
};

void write_file_atomic(const std::string& path, std::string_view bytes);

// The whole file; Error if it has more than `max_bytes`.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

void sync_file(const std::string& path);    // fsync: what was written is on the disk
void sync_folder(const std::string& path);  // ... and so are the names in it

}  // namespace ramify::io
