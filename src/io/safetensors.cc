#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "io/input_file.h"
#include "io/safetensors_header.h"

namespace ramify::io {

// --- reading

class SafetensorsReader::File {
 public:
  explicit File(std::string path) : file(std::move(path)) {
    const std::string& name = file.name();
    if (file.size() < 8) throw Error(name + ": is too short; expected a safetensors file");
    std::array<unsigned char, 8> length_bytes;
    file.read_at(0, std::as_writable_bytes(std::span(length_bytes)));
    uint64_t length = 0;  // little endian
    for (size_t i = 8; i-- > 0;) length = length << 8 | length_bytes[i];
    if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
      throw Error(name + ": the header has " + std::to_string(length) + " bytes; expected at most " +
                  std::to_string(kMaxHeaderBytes));
    }
    const auto header_bytes = static_cast<int64_t>(length);
    if (header_bytes > file.size() - 8) throw Error(name + ": ends inside its header; expected a whole file");
    std::string json(length, '\0');
    file.read_at(8, std::as_writable_bytes(std::span(json)));
    header = parse_header(name, json, file.size() - 8 - header_bytes);
  }

  InputFile file;
  SafetensorsHeader header;
};

SafetensorsReader::SafetensorsReader(std::string path) : file_(std::make_unique<File>(std::move(path))) {}
SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

const std::string& SafetensorsReader::path() const {
  return file_->file.name();
}
const std::vector<TensorInfo>& SafetensorsReader::tensors() const {
  return file_->header.tensors;
}
const TensorMetadata& SafetensorsReader::metadata() const {
  return file_->header.metadata;
}

const TensorInfo* SafetensorsReader::find(std::string_view name) const {
  const auto& all = tensors();
  const auto found = std::lower_bound(all.begin(), all.end(), name,
                                      [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

const TensorInfo& SafetensorsReader::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (!tensor) throw Error(path() + ": has no tensor " + printable(name));
  return *tensor;
}

void SafetensorsReader::read(std::string_view name, std::span<std::byte> out) const {
  const TensorInfo& tensor = at(name);
  if (static_cast<int64_t>(out.size()) != tensor.size) {
    throw Error(path() + ": tensor " + printable(name) + " has " + std::to_string(tensor.size) + " bytes; expected " +
                std::to_string(out.size()));
  }
  read_part(tensor, 0, out);
}

void SafetensorsReader::read_part(const TensorInfo& tensor, int64_t begin, std::span<std::byte> out) const {
  assert(begin >= 0 && static_cast<int64_t>(out.size()) <= tensor.size - begin);
  file_->file.read_at(tensor.offset + begin, out);
}

bool SafetensorsReader::is_unchanged() const {
  return file_->file.is_unchanged();
}

// --- writing

namespace {

std::string header_json(const std::string& path, const std::vector<TensorInfo>& tensors,
                        const TensorMetadata& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.name == "__metadata__" || header.contains(tensor.name)) {
      throw Error(path + ": cannot write a tensor named " + printable(tensor.name) + "; expected a name of its own");
    }
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.offset, tensor.offset + tensor.size}}};
  }
  std::string text;
  try {
    text = header.empty() ? "{}" : header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(path + ": a name or the metadata is not valid UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data begins aligned
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes) throw Error(path + ": more tensors than a header can hold");
  return text;
}

}  // namespace

class SafetensorsWriter::File {
 public:
  File(std::string path, std::vector<TensorInfo> all, const TensorMetadata& metadata)
      : path_(path), file_(std::move(path)), tensors(std::move(all)) {
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(-dtype_bytes(a.dtype), std::string_view(a.name)) <
             std::pair(-dtype_bytes(b.dtype), std::string_view(b.name));
    });
    int64_t at = 0;
    for (TensorInfo& tensor : tensors) {
      tensor.size = tensor_bytes(tensor.dtype, tensor.shape);
      tensor.offset = at;
      if (tensor.size < 0 || __builtin_add_overflow(at, tensor.size, &at)) {
        throw Error(path_ + ": cannot write the tensor " + printable(tensor.name) + " with its dtype and shape");
      }
    }
    const std::string json = header_json(path_, tensors, metadata);
    std::string length;  // little endian
    for (int i = 0; i < 8; ++i) length += static_cast<char>(json.size() >> 8 * i & 0xFF);
    file_.write(length + json);
    for (TensorInfo& tensor : tensors) tensor.offset += static_cast<int64_t>(8 + json.size());
  }

  void write(std::string_view name, std::span<const std::byte> bytes) {
    if (next_ == tensors.size() || tensors[next_].name != name) {
      throw Error(path_ + ": tensor " + printable(name) + " is written out of order");
    }
    if (static_cast<int64_t>(bytes.size()) != tensors[next_].size) {
      throw Error(path_ + ": tensor " + printable(name) + " has " + std::to_string(bytes.size()) + " bytes; expected " +
                  std::to_string(tensors[next_].size));
    }
    file_.write(bytes);
    ++next_;
  }

  void commit() {
    if (next_ != tensors.size()) throw Error(path_ + ": tensor " + printable(tensors[next_].name) + " was not written");
    file_.commit();
  }

 private:
  std::string path_;
  AtomicFile file_;
  size_t next_ = 0;

 public:
  std::vector<TensorInfo> tensors;
};

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorInfo> tensors, const TensorMetadata& metadata)
    : file_(std::make_unique<File>(std::move(path), std::move(tensors), metadata)) {}
SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

const std::vector<TensorInfo>& SafetensorsWriter::tensors() const {
  return file_->tensors;
}
void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  file_->write(name, bytes);
}
void SafetensorsWriter::commit() {
  file_->commit();
}

void write_safetensors(const std::string& path, std::span<const TensorBytes> tensors, const TensorMetadata& metadata) {
  std::vector<TensorInfo> infos;
  std::map<std::string_view, std::span<const std::byte>> bytes;
  for (const TensorBytes& tensor : tensors) {
    infos.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
    bytes[tensor.name] = tensor.bytes;
  }
  SafetensorsWriter writer(path, std::move(infos), metadata);
  for (const TensorInfo& tensor : writer.tensors()) writer.write(tensor.name, bytes.at(tensor.name));
  writer.commit();
}

}  // namespace ramify::io
