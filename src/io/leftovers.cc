#include "io/leftovers.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace ramify::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".tmp-";  // and the number of the process

constexpr pid_t kLargestProcess = 1 << 22;  // on Linux; what is above may be a date

// True if `pid` names this process or none. A number that another process has been given since then keeps a leftover
// alive until a later write.
bool is_abandoned(std::string_view pid) {
  pid_t number = 0;
  const auto [end, error] = std::from_chars(pid.data(), pid.data() + pid.size(), number);
  if (error != std::errc() || end != pid.data() + pid.size() || number <= 0 || number > kLargestProcess) {
    return false;
  }
  return number == ::getpid() || (::kill(number, 0) != 0 && errno == ESRCH);
}

// Of the file `name`; of all files where that is nothing.
void remove_abandoned(const std::string& folder, const std::optional<std::string>& name) {
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    const size_t mark = found.rfind(kMark);
    if (mark == found.npos || (name && found.substr(0, mark) != *name)) continue;
    if (is_abandoned(std::string_view(found).substr(mark + kMark.size()))) abandoned.push_back(entry->path());
  }
  for (const auto& leftover : abandoned) fs::remove_all(leftover, error);
}

}  // namespace

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string temporary_name(const std::string& path) {
  return path + std::string(kMark) + std::to_string(::getpid());
}

void remove_leftovers(const std::string& path) {
  remove_abandoned(folder_of(path), fs::path(path).filename().string());
}

void remove_leftovers_in(const std::string& folder) {
  remove_abandoned(folder, std::nullopt);
}

}  // namespace ramify::io
