// The files inside an uncompressed .tar, found by name: ustar, GNU (long names) and pax (path, size). Only an index is
// kept in memory; reading is by pread and may happen in many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/error.h"
#include "io/input_file.h"

namespace ramify::io {

class TarIndex {
 public:
  explicit TarIndex(std::string path);

  const std::string& path() const { return file_.name(); }
  size_t size() const { return entries_.size(); }  // files
  bool contains(std::string_view name) const;      // a leading "./" does not matter
  std::vector<std::string> names() const;          // sorted

  // Error naming both if it is not there, or has more than `max_bytes`.
  std::vector<uint8_t> read(std::string_view name, size_t max_bytes = size_t{1} << 30) const;

 private:
  struct Entry {
    int64_t offset;
    int64_t size;
  };
  class Walk;
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };

  InputFile file_;
  std::unordered_map<std::string, Entry, NameHash, std::equal_to<>> entries_;
};

}  // namespace ramify::io
