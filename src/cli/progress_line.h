// Progress of long work on standard error: one line that is written over on a terminal, else a plain line now and then.
#pragma once

#include <cstddef>
#include <string>

namespace ramify::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `share` in 0..1 is drawn as a bar; below 0: no bar.
  void show(const std::string& head, double share, const std::string& tail);
  // A line that stays.
  void print(const std::string& text);
  void clear();

 private:
  bool is_due();

  bool terminal_;
  bool shown_ = false;
  double last_ = 0;
};

// Columns of the terminal behind a file descriptor; `otherwise` where there is none.
size_t terminal_width(int descriptor, size_t otherwise);
// "1:02:03", "4:05", "12 s"
std::string duration_text(double seconds);
// "812", "12.3 k", "4.5 M"
std::string count_text(double count);

}  // namespace ramify::cli
