#include "io/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "io/leftovers.h"
#include "io/sha256.h"

namespace ramify::io {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxManifestBytes = size_t{16} << 20;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

std::string old_name(const std::string& folder) {
  return folder + ".old";
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
}

void rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error(from, "rename to " + to);
}

int64_t file_bytes(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) throw system_error(path, "open");
  if (!S_ISREG(status.st_mode)) throw Error(path + ": is no file; expected only files in this folder");
  return status.st_size;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw Error(folder + ": cannot list: " + error.message());
  return names;
}

// Flushes the files of `folder` and describes them.
nlohmann::json manifest_of(const std::string& folder) {
  auto files = nlohmann::json::object();
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    sync_file(path);
    files[name] = {{"bytes", file_bytes(path)}, {"sha256", sha256_file(path)}};
  }
  return {{"files", std::move(files)}};
}

void check_file(const std::string& path, const nlohmann::json& expected) {
  const int64_t found = file_bytes(path);
  const auto bytes = expected.at("bytes").get<int64_t>();
  if (found != bytes) {
    throw Error(path + ": has " + std::to_string(found) + " bytes; expected " + std::to_string(bytes) +
                " by the manifest");
  }
  if (sha256_file(path) != expected.at("sha256").get<std::string>()) {
    throw Error(path + ": its contents have changed; expected the SHA-256 of the manifest");
  }
}

// Throws unless every file of the manifest is there as it was written.
void verify(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  const std::string text = read_file(path, kMaxManifestBytes);
  try {
    const auto manifest = nlohmann::json::parse(text);
    for (const auto& [name, expected] : manifest.at("files").items()) {
      if (!is_plain_name(name)) throw Error(path + ": names " + printable(name) + "; expected files of this folder");
      check_file(folder + "/" + name, expected);
    }
  } catch (const nlohmann::json::exception&) {
    throw Error(path + ": is no manifest; expected the size and SHA-256 of each file");
  }
}

bool verifies(const std::string& folder) {
  try {
    verify(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Where the file system cannot exchange: FOLDER.old is the readable one between the two renames.
void swap_by_renames(const std::string& temporary, const std::string& folder) {
  const std::string old = old_name(folder);
  if (exists(old) && !verifies(folder)) {
    remove_folder(folder);  // FOLDER.old is the last good one: it stays until the new folder is in place
  } else {
    remove_folder(old);
    rename_folder(folder, old);
    sync_folder(folder_of(folder));
  }
  rename_folder(temporary, folder);
}

void swap_in(const std::string& temporary, const std::string& folder, FolderSwap swap) {
  if (!exists(folder)) return rename_folder(temporary, folder);
  if (swap == FolderSwap::exchange) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) throw system_error(folder, "replace");
  }
  swap_by_renames(temporary, folder);
}

}  // namespace

FolderWriter::FolderWriter(std::string folder) : folder_(std::move(folder)) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
  temporary_ = temporary_name(folder_);
  remove_leftovers(folder_);
  if (::mkdir(temporary_.c_str(), 0777) != 0) throw system_error(folder_, "create");
}

FolderWriter::~FolderWriter() {
  if (!temporary_.empty()) remove_folder(temporary_);
}

std::string FolderWriter::path(std::string_view name) const {
  if (!is_plain_name(name) || name == kManifestName) {
    throw Error(folder_ + ": cannot hold a file named " + printable(name) + "; expected a plain name");
  }
  return temporary_ + "/" + std::string(name);
}

void FolderWriter::write(std::string_view name, std::string_view bytes) {
  write_file_atomic(path(name), bytes);
}

void FolderWriter::commit(FolderSwap swap) {
  write_file_atomic(temporary_ + "/" + std::string(kManifestName), manifest_of(temporary_).dump(1) + "\n");
  sync_folder(temporary_);
  swap_in(temporary_, folder_, swap);
  sync_folder(folder_of(folder_));
  remove_folder(std::exchange(temporary_, {}));  // the old folder, where they were exchanged
  remove_folder(old_name(folder_));
}

bool folder_exists(const std::string& folder) {
  return exists(folder) || exists(old_name(folder));
}

std::string open_folder(const std::string& folder) {
  try {
    verify(folder);
    return folder;
  } catch (const Error&) {
    if (verifies(old_name(folder))) return old_name(folder);
    throw;
  }
}

}  // namespace ramify::io
