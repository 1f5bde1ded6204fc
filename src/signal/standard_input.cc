#include "signal/standard_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "io/error.h"

namespace ramify::signal {
namespace {

[[noreturn]] void fail(const char* what) {
  throw io::Error(fmt::format("standard input: {}: {}", what, std::strerror(errno)));
}

}  // namespace

void make_standard_input_rewindable() {
  if (lseek(STDIN_FILENO, 0, SEEK_CUR) >= 0) return;
  const std::unique_ptr<FILE, int (*)(FILE*)> copy(std::tmpfile(), &std::fclose);
  if (!copy) fail("no temporary file to copy it to");
  std::vector<char> buffer(size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot be read");
    if (count == 0) break;
    if (std::fwrite(buffer.data(), 1, static_cast<size_t>(count), copy.get()) != static_cast<size_t>(count)) {
      fail("cannot be copied to a temporary file");
    }
  }
  if (std::fflush(copy.get()) != 0) fail("cannot be copied to a temporary file");
  if (dup2(fileno(copy.get()), STDIN_FILENO) < 0) fail("cannot be replaced by a copy");
  rewind_standard_input();
}

void rewind_standard_input() {
  if (lseek(STDIN_FILENO, 0, SEEK_SET) < 0) fail("cannot be read from its start again");
}

}  // namespace ramify::signal
