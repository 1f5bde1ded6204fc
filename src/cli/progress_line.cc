#include "progress_line.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "notes.h"

namespace ramify::cli {
namespace {

constexpr double kTerminalSeconds = 0.1;
constexpr double kPlainSeconds = 10;
constexpr int kBarWidth = 24;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string bar(double share) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBarWidth);
  return fmt::format("[{}{}] {:3.0f}%", std::string(full, '#'), std::string(kBarWidth - full, '.'), 100 * share);
}

}  // namespace

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1), last_(now()) {}

bool ProgressLine::is_due() {
  const double time = now();
  if (time - last_ < (terminal_ ? kTerminalSeconds : kPlainSeconds)) return false;
  last_ = time;
  return true;
}

void ProgressLine::show(const std::string& head, double share, const std::string& tail) {
  if (!is_due()) return;
  if (!terminal_) {
    tell("{}  {}{}\n", head, share >= 0 ? fmt::format("{:3.0f}%  ", 100 * share) : "", tail);
    return;
  }
  const size_t width = terminal_width(STDERR_FILENO, 80) - 1;
  std::string line = fmt::format("{}  {}  {}", head, share >= 0 ? bar(share) : "", tail);
  if (line.size() > width) line = fmt::format("{}  {:.0f}%  {}", head, 100 * std::max(share, 0.0), tail);
  tell("\r\033[K{}", line.substr(0, width));
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::print(const std::string& text) {
  clear();
  tell("{}\n", text);
}

void ProgressLine::clear() {
  if (!shown_) return;
  tell("\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

size_t terminal_width(int descriptor, size_t otherwise) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string count_text(double count) {
  if (count < 1e4) return fmt::format("{:.0f}", count);
  return count < 1e6 ? fmt::format("{:.1f} k", count / 1e3) : fmt::format("{:.1f} M", count / 1e6);
}

}  // namespace ramify::cli
