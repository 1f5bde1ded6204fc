// Lines to a file that is in its place only when it is whole, or to standard output as they come.
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/atomic_file.h"

namespace ramify::cli {

// A result must not take the place of what it is made from. std::invalid_argument if `out` is one of `inputs`.
inline void require_no_input(const std::string& out, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (out.empty() || !std::filesystem::is_regular_file(out, ignored)) return;
    if (std::filesystem::equivalent(out, input, ignored)) {
      throw std::invalid_argument(out + ": is also an input; choose another file for the result");
    }
  }
}

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
