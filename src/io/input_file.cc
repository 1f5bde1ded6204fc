#include "io/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ramify::io {

InputFile::InputFile(std::string path) : name_(std::move(path)) {
  if (name_ == "-") {
    name_ = "standard input";
    descriptor_ = STDIN_FILENO;
  } else {
    descriptor_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw system_error(name_, "open");
  }
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) return;
  if (S_ISREG(status.st_mode)) size_ = status.st_size;
  changed_ = status.st_mtim;
}

InputFile::~InputFile() {
  if (descriptor_ > STDIN_FILENO) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : name_(std::move(other.name_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      changed_(other.changed_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(changed_, other.changed_);
  return *this;
}

size_t InputFile::read(std::span<std::byte> out) {
  while (true) {
    const ssize_t count = ::read(descriptor_, out.data(), out.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) throw system_error(name_, "read");
  }
}

bool InputFile::is_unchanged() const {
  struct stat status;
  return ::fstat(descriptor_, &status) == 0 && status.st_size == size_ && status.st_mtim.tv_sec == changed_.tv_sec &&
         status.st_mtim.tv_nsec == changed_.tv_nsec;
}

bool InputFile::is_ready() const {
  pollfd asked{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) != 0;  // an error is found by read()
}

void InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(name_, "read");
    if (count == 0) {
      throw Error(name_ + ": ends at byte " + std::to_string(offset) + "; expected " + std::to_string(out.size()) +
                  " more bytes");
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

}  // namespace ramify::io
