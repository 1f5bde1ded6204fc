// The safetensors format: a JSON header of names, dtypes, shapes and offsets, then the bytes. Files are not trusted and
// not mapped into memory: the header is checked as a whole when the file is opened, the data is read with pread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace ramify::io {

struct TensorInfo {
  std::string name;
  std::string dtype;           // as the format writes it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // empty: a scalar
  int64_t offset = 0;          // of its first byte in the file
  int64_t size = 0;            // bytes
};

using TensorMetadata = std::map<std::string, std::string>;

// Bytes of one element; 0 if `dtype` is not known.
int64_t dtype_bytes(std::string_view dtype);

// Thread-safe once open.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::string path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  const std::string& path() const;
  const std::vector<TensorInfo>& tensors() const;  // sorted by name
  const TensorMetadata& metadata() const;

  const TensorInfo* find(std::string_view name) const;               // nullptr: not there
  const TensorInfo& at(std::string_view name) const;                 // Error: not there
  void read(std::string_view name, std::span<std::byte> out) const;  // out.size() must be the tensor's size
  // Bytes of a tensor from `begin` on, which must be in it.
  void read_part(const TensorInfo& tensor, int64_t begin, std::span<std::byte> out) const;

  bool is_unchanged() const;  // since it was opened, as far as its size and the time of the last change tell

 private:
  class File;
  std::unique_ptr<File> file_;
};

// A file being written, one tensor after the other, and in place only after commit(). The order in the file is
// tensors(): wider elements first, so that every tensor is aligned, then by name.
class SafetensorsWriter {
 public:
  // `tensors`: name, dtype, shape; offset and size are computed here.
  SafetensorsWriter(std::string path, std::vector<TensorInfo> tensors, const TensorMetadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  const std::vector<TensorInfo>& tensors() const;
  void write(std::string_view name, std::span<const std::byte> bytes);  // the next one of tensors(), whole
  void commit();                                                        // Error if a tensor has not been written

 private:
  class File;
  std::unique_ptr<File> file_;
};

struct TensorBytes {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};
void write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                       const TensorMetadata& metadata = {});

}  // namespace ramify::io
