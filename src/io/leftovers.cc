#include "io/leftovers.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

namespace ramify::io {
namespace {

namespace fs = std::filesystem;

// True if `pid` names this process or none. A number that another process has been given since then keeps a leftover
// alive until a later write.
bool is_abandoned(std::string_view pid) {
  pid_t number = 0;
  const auto [end, error] = std::from_chars(pid.data(), pid.data() + pid.size(), number);
  if (error != std::errc() || end != pid.data() + pid.size() || number <= 0) return false;
  return number == ::getpid() || (::kill(number, 0) != 0 && errno == ESRCH);
}

}  // namespace

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::string temporary_name(const std::string& path) {
  return path + ".tmp-" + std::to_string(::getpid());
}

void remove_leftovers(const std::string& path) {
  const std::string prefix = fs::path(path).filename().string() + ".tmp-";
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && is_abandoned(std::string_view(name).substr(prefix.size()))) {
      abandoned.push_back(entry->path());
    }
  }
  for (const auto& leftover : abandoned) fs::remove_all(leftover, error);
}

}  // namespace ramify::io
