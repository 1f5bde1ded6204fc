#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/input_file.h"
#include "io/leftovers.h"

namespace ramify::io {
namespace {

void sync(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw system_error(path, "open");
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  if (result != 0 && error != EINVAL) throw system_error(path, "flush");  // EINVAL: a file system without it
}

bool is_special(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

// Where the links end that `path` may be, whether there is a file or not.
std::string without_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the system has it
  namespace fs = std::filesystem;
  fs::path target = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const fs::path link = fs::read_symlink(target, error);
    if (error) return target.string();  // no link
    target = target.parent_path() / link;
  }
  errno = ELOOP;
  throw system_error(path, "create");
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (is_special(path_)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw system_error(path_, "open");
    return;
  }
  target_ = without_links(path_);
  temporary_ = temporary_name(target_);
  remove_leftovers(target_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw system_error(path_, "create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  write(std::as_bytes(std::span(bytes)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void AtomicFile::commit() {
  const bool is_replaced = !temporary_.empty();
  if (is_replaced) {
    if (::fsync(descriptor_) != 0 && errno != EINVAL) throw system_error(path_, "flush");
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw system_error(path_, "replace");
  }
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) throw system_error(path_, "close");
  if (is_replaced) sync_folder(folder_of(target_));
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

std::string read_file(const std::string& path, size_t max_bytes) {
  InputFile file(path);
  std::string bytes;
  if (file.size() > 0) bytes.reserve(std::min(static_cast<size_t>(file.size()), max_bytes));
  std::string buffer(size_t{1} << 17, '\0');
  while (const size_t count = file.read(std::as_writable_bytes(std::span(buffer)))) {
    if (count > max_bytes - bytes.size()) {
      throw Error(file.name() + ": has more than " + std::to_string(max_bytes) + " bytes; expected a smaller file");
    }
    bytes.append(buffer, 0, count);
  }
  return bytes;
}

void sync_file(const std::string& path) {
  sync(path, 0);
}

void sync_folder(const std::string& path) {
  sync(path, O_DIRECTORY);
}

}  // namespace ramify::io
