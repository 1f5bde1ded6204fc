#include "signal/record_bytes.h"

#include <cstring>
#include <type_traits>

#include "io/error.h"

namespace ramify::signal {
namespace {

template <class Value>
concept Plain = std::is_trivially_copyable_v<Value>;

// The one list of what a record is made of, for both directions.
template <class Archive, class OneRecord>
void visit_record(Archive& archive, OneRecord& record) {
  auto& s = record.signal;
  archive(record.file, record.line, record.bytes, record.error, record.json, s.level_begin, s.children, s.domain,
          s.place, s.modality, s.id, s.values, s.patches, s.unknown_keys, s.graph_positions, s.graph_begin,
          s.target.known, s.target.value, s.target.classes, s.target.leaf_begin, s.target.leaf_end, s.truncated);
}

class Writer {
 public:
  template <class... Values>
  void operator()(const Values&... values) {
    (write(values), ...);
  }
  std::string bytes;

 private:
  void add(const void* data, size_t size) {
    if (size > 0) bytes.append(static_cast<const char*>(data), size);
  }
  template <Plain Value>
  void write(const Value& value) {
    add(&value, sizeof value);
  }
  void write(const std::string& text) {
    write(text.size());
    add(text.data(), text.size());
  }
  template <class Value>
  void write(const std::vector<Value>& values) {
    write(values.size());
    if constexpr (Plain<Value>) {
      add(values.data(), values.size() * sizeof(Value));
    } else {
      for (const Value& value : values) write(value);
    }
  }
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class... Values>
  void operator()(Values&... values) {
    (read(values), ...);
  }
  bool at_end() const { return rest_.empty(); }

 private:
  void take(void* data, size_t size) {
    if (size > rest_.size()) throw io::Error("records of another process came incomplete");
    if (size > 0) std::memcpy(data, rest_.data(), size);
    rest_.remove_prefix(size);
  }
  // No more than there are bytes for: a broken length is an error, not an allocation.
  size_t count(size_t element) {
    size_t n = 0;
    take(&n, sizeof n);
    if (n > rest_.size() / element) throw io::Error("records of another process came incomplete");
    return n;
  }
  template <Plain Value>
  void read(Value& value) {
    take(&value, sizeof value);
  }
  void read(std::string& text) {
    text.resize(count(1));
    take(text.data(), text.size());
  }
  template <class Value>
  void read(std::vector<Value>& values) {
    values.resize(count(Plain<Value> ? sizeof(Value) : sizeof(size_t)));
    if constexpr (Plain<Value>) {
      take(values.data(), values.size() * sizeof(Value));
    } else {
      for (Value& value : values) read(value);
    }
  }

  std::string_view rest_;
};

}  // namespace

std::string to_bytes(const RecordChunk& chunk) {
  Writer writer;
  for (const Record& record : chunk.records) visit_record(writer, record);
  return std::move(writer.bytes);
}

RecordChunk chunk_from_bytes(std::string_view bytes) {
  RecordChunk chunk;
  for (Reader reader(bytes); !reader.at_end();) visit_record(reader, chunk.records.emplace_back());
  return chunk;
}

}  // namespace ramify::signal
