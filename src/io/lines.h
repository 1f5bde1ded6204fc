// Lines of a text file, plain or zstd-compressed (told by its content), or of standard input ("-"). Memory stays within
// the line limit and the window limit of zstd, whatever the file holds. It is not a JSON reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/error.h"

namespace ramify::io {

// A line over the limit. It has been passed over: next() goes on with the line after it.
class LineTooLong : public Error {
 public:
  using Error::Error;
};

class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

  explicit LineReader(std::string path, size_t max_line_bytes = kMaxLineBytes);
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  // The next line without its \n or \r\n, and without a byte order mark at the start of the file; false at the end.
  // Throws Error("FILE:LINE: ...") for what cannot be read, and LineTooLong. After another Error the reader is at its
  // end.
  bool next(std::string& line);

  // False: the file is a pipe in which no further line stands ready.
  bool is_ready() const;

  int64_t number() const;           // of the line last returned or refused, from 1; 0 before the first
  const std::string& name() const;  // the path; "standard input" for "-"

  // For progress: bytes taken from the file so far (compressed ones, where it is), and its size; -1: not known (a
  // pipe).
  int64_t bytes_taken() const;
  int64_t bytes_in_file() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace ramify::io
