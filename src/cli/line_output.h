// Lines to a file that is in its place only when it is whole, or to standard output as they come.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "io/atomic_file.h"

namespace ramify::cli {

class LineOutput {
 public:
  explicit LineOutput(const std::string& path) {  // "": standard output
    if (!path.empty()) file_.emplace(path);
  }

  void write(const std::string& line) {
    if (file_) {
      file_->write(line + "\n");
    } else if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fputc('\n', stdout) == EOF) {
      throw io::Error("standard output: cannot write");
    }
  }

  void flush() { std::fflush(stdout); }

  void commit() {
    if (file_) file_->commit();
    if (std::fflush(stdout) != 0) throw io::Error("standard output: cannot write");
  }

 private:
  std::optional<io::AtomicFile> file_;
};

}  // namespace ramify::cli
