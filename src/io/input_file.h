// A file open for reading: in order, or at chosen places from many threads. Nothing is mapped into memory, so a file
// that is cut short meanwhile is an Error, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include "io/error.h"

namespace ramify::io {

class InputFile {
 public:
  explicit InputFile(std::string path);  // "-": standard input
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }  // when it was opened; -1: a pipe or the like
  bool is_unchanged() const;              // its size and the time of the last change are what they were then

  size_t read(std::span<std::byte> out);                         // some of what comes next; 0: the end
  bool is_ready() const;                                         // read() would not wait
  void read_at(int64_t offset, std::span<std::byte> out) const;  // all of `out`; Error at the end of the file

 private:
  std::string name_;
  int descriptor_ = -1;
  int64_t size_ = -1;
  timespec changed_{};  // for the last time before it was opened
};

}  // namespace ramify::io
