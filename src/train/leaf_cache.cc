#include "train/leaf_cache.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "io/error.h"
#include "io/safetensors.h"
#include "io/sha256.h"

namespace ramify::train {
namespace {

constexpr int64_t kFloat = sizeof(float);    // bytes
constexpr int64_t kDigits = 64;              // of a SHA-256
constexpr int64_t kMaxRowsBytes = 64 << 20;  // of one part, unless a single piece has more
constexpr const char* kRemove = "; remove this file, then the vectors are computed anew";

std::string part_name(size_t part) {
  const std::string digits = std::to_string(part);
  return "rows." + std::string(6 - std::min<size_t>(6, digits.size()), '0') + digits;
}

template <class Element>
std::span<const std::byte> bytes_of(const std::vector<Element>& values) {
  return std::as_bytes(std::span(values));
}

template <class Element>
std::vector<Element> read_values(const io::SafetensorsReader& file, const std::string& name, const char* dtype) {
  const io::TensorInfo& info = file.at(name);
  if (info.dtype != dtype) throw io::Error(file.path() + ": tensor " + name + " is " + info.dtype);
  std::vector<Element> values(static_cast<size_t>(info.size) / sizeof(Element));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

// A key and its rows, which are in memory or in a file.
struct Piece {
  std::string_view key;
  int64_t values = 0;                          // rows · width
  std::function<void(std::span<float>)> read;  // all of them
};
using Pieces = std::vector<Piece>;

// Pieces as they are written: the rows in parts, so that there is never a second copy of all of them.
class CacheParts {
 public:
  CacheParts(Pieces pieces, int64_t width) : pieces_(std::move(pieces)), width_(width) {
    int64_t bytes = kMaxRowsBytes;
    for (const Piece& piece : pieces_) {
      if (bytes >= kMaxRowsBytes) part_begin_.push_back(begin_.size() - 1), bytes = 0;
      keys_.insert(keys_.end(), piece.key.begin(), piece.key.end());
      begin_.push_back(begin_.back() + piece.values / width);
      bytes += piece.values * kFloat;
    }
    part_begin_.push_back(pieces_.size());
  }

  void write(const std::string& file, const signal::LeafEncoding& encoding) const {
    const auto count = static_cast<int64_t>(pieces_.size());
    std::vector<io::TensorInfo> infos = {info("keys", "U8", {count, kDigits}), info("begin", "I64", {count + 1})};
    std::string sums = io::sha256_hex(bytes_of(keys_)) + io::sha256_hex(bytes_of(begin_));
    for (size_t part = 0; part < num_parts(); ++part) {
      infos.push_back(
          info(part_name(part), "F32", {begin_[part_begin_[part + 1]] - begin_[part_begin_[part]], width_}));
      sums += io::sha256_hex(bytes_of(values(part)));
    }
    io::SafetensorsWriter writer(file, std::move(infos),
                                 {{"model", encoding.sha256},
                                  {"level", std::string(name_of(encoding.level))},
                                  {"sha256", io::sha256_hex(sums)}});
    // the writer's order: wider elements first, then by name
    writer.write("begin", bytes_of(begin_));
    for (size_t part = 0; part < num_parts(); ++part) writer.write(part_name(part), bytes_of(values(part)));
    writer.write("keys", bytes_of(keys_));
    writer.commit();
  }

 private:
  static io::TensorInfo info(std::string name, const char* dtype, std::vector<int64_t> shape) {
    return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
  }

  size_t num_parts() const { return part_begin_.size() - 1; }

  std::vector<float> values(size_t part) const {
    const size_t first = part_begin_[part], last = part_begin_[part + 1];
    std::vector<float> values(static_cast<size_t>((begin_[last] - begin_[first]) * width_));
    std::span<float> rest = values;
    for (size_t i = first; i < last; ++i) {
      pieces_[i].read(rest.first(static_cast<size_t>(pieces_[i].values)));
      rest = rest.subspan(static_cast<size_t>(pieces_[i].values));
    }
    return values;
  }

  Pieces pieces_;
  int64_t width_;
  std::vector<char> keys_;
  std::vector<int64_t> begin_ = {0};
  std::vector<size_t> part_begin_;  // [parts + 1]: pieces of each
};

// What cannot be written should be known before hours of computing.
void check_folder_of(const std::string& file) {
  const std::string folder = std::filesystem::absolute(file).parent_path().string();
  if (::access(folder.c_str(), W_OK) == 0) return;
  throw io::Error(file + ": cannot be written: " + std::strerror(errno));
}

std::string value_of(const io::TensorMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

}  // namespace

// Only keys and places are in memory. The file is not mapped: if it is cut short, that is an error and not a signal
// (io/input_file.h).
class LeafCache::StoredVectors {
 public:
  StoredVectors(const std::string& path, const signal::LeafEncoding& encoding) : file_(path), width_(encoding.width) {
    check_encoding(encoding);
    const std::vector<char> keys = read_values<char>(file_, "keys", "U8");
    begin_ = read_values<int64_t>(file_, "begin", "I64");
    if (sha256(keys) != value_of(file_.metadata(), "sha256") || !fits(keys)) throw io::Error(path + ": is broken");
    for (size_t i = 0; i + 1 < begin_.size(); ++i) {
      piece_of_.emplace(std::string(keys.data() + i * kDigits, kDigits), i);
    }
  }

  std::optional<std::vector<float>> find(const std::string& key) const {
    const auto found = piece_of_.find(key);
    if (found == piece_of_.end()) return std::nullopt;
    std::vector<float> values(static_cast<size_t>(num_values(found->second)));
    read(found->second, values);
    return values;
  }

  Pieces pieces() const {
    Pieces pieces;
    for (const auto& [key, piece] : piece_of_) {
      pieces.push_back({key, num_values(piece), [this, piece](std::span<float> out) { read(piece, out); }});
    }
    return pieces;
  }

  void check_unchanged() const {
    if (!file_.is_unchanged()) throw io::Error(file_.path() + ": was changed while it was read; begin again");
  }

 private:
  void check_encoding(const signal::LeafEncoding& encoding) const {
    const std::string level = value_of(file_.metadata(), "level"), model = value_of(file_.metadata(), "model");
    if (model.empty()) throw io::Error(file_.path() + ": is no cache of --leaf-cache");
    if (model != encoding.sha256) {
      throw io::Error(file_.path() + ": has the vectors of another model than " + encoding.model);
    }
    if (level != name_of(encoding.level)) {
      throw io::Error(file_.path() + ": has the vectors of --leaf-level " + io::printable(level) + ", not " +
                      std::string(name_of(encoding.level)));
    }
  }

  // Of all tensors; finds the parts on the way.
  std::string sha256(const std::vector<char>& keys) {
    std::string sums = io::sha256_hex(bytes_of(keys)) + io::sha256_hex(bytes_of(begin_));
    std::vector<std::byte> bytes;
    while (const io::TensorInfo* const part = file_.find(part_name(parts_.size()))) {
      if (part->dtype != "F32") throw io::Error(file_.path() + ": tensor " + part->name + " is " + part->dtype);
      bytes.resize(static_cast<size_t>(part->size));
      file_.read_part(*part, 0, bytes);
      sums += io::sha256_hex(bytes);
      parts_.push_back(part);
      part_begin_.push_back(part_begin_.back() + part->size / kFloat);
    }
    return io::sha256_hex(sums);
  }

  bool fits(const std::vector<char>& keys) const {
    if (begin_.empty() || begin_.front() != 0 || !std::ranges::is_sorted(begin_)) return false;
    const int64_t total = part_begin_.back();
    return keys.size() == (begin_.size() - 1) * kDigits && total % width_ == 0 && begin_.back() == total / width_;
  }

  int64_t num_values(size_t piece) const { return (begin_[piece + 1] - begin_[piece]) * width_; }

  // The parts are one array: a piece may end in another part than it begins in.
  void read(size_t piece, std::span<float> out) const {
    int64_t first = begin_[piece] * width_;
    for (auto part = static_cast<size_t>(std::ranges::upper_bound(part_begin_, first) - part_begin_.begin()) - 1;
         !out.empty(); ++part) {
      const auto count = std::min(out.size(), static_cast<size_t>(part_begin_[part + 1] - first));
      file_.read_part(*parts_[part], (first - part_begin_[part]) * kFloat, std::as_writable_bytes(out.first(count)));
      out = out.subspan(count);
      first += static_cast<int64_t>(count);
    }
  }

  const io::SafetensorsReader file_;
  const int64_t width_;
  std::vector<int64_t> begin_;                        // [pieces + 1]: rows of each
  std::vector<const io::TensorInfo*> parts_;          // of file_
  std::vector<int64_t> part_begin_ = {0};             // [parts + 1]: values of each
  std::unordered_map<std::string, size_t> piece_of_;  // by key
};

LeafCache::LeafCache(const signal::LeafEncoding& encoding, std::string file, int64_t max_bytes)
    : encoding_(encoding), file_(std::move(file)), max_bytes_(max_bytes) {
  if (file_.empty()) return;
  check_folder_of(file_);
  if (!std::filesystem::exists(file_)) return;
  try {
    stored_ = std::make_unique<const StoredVectors>(file_, encoding_);
  } catch (const io::Error& error) {
    throw io::Error(std::string(error.what()) + kRemove);
  }
}

LeafCache::~LeafCache() = default;

std::shared_ptr<LeafCache::Entry> LeafCache::entry_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  if (is_closed_ || (file_.empty() && bytes_ >= max_bytes_)) return nullptr;
  return entries_.emplace(key, std::make_shared<Entry>()).first->second;
}

std::vector<float> LeafCache::rows(const std::string& key, const std::function<std::vector<float>()>& compute) {
  const auto count = [&](int64_t computed, size_t values) {
    const std::lock_guard lock(mutex_);
    ++counts_.asked;
    counts_.computed += computed;
    bytes_ += static_cast<int64_t>(values * sizeof(float));
  };
  if (stored_) {
    if (std::optional<std::vector<float>> rows = stored_->find(key)) {
      count(0, 0);
      return std::move(*rows);
    }
  }
  const std::shared_ptr<Entry> entry = entry_of(key);
  if (!entry) {
    std::vector<float> rows = compute();
    count(1, 0);
    return rows;
  }
  const std::lock_guard lock(entry->mutex);
  if (entry->is_known) {
    count(0, 0);
    return entry->rows;
  }
  entry->rows = compute();
  entry->is_known = true;
  count(1, entry->rows.size());
  return entry->rows;
}

void LeafCache::save() const {
  if (file_.empty()) return;
  if (stored_) stored_->check_unchanged();
  Pieces pieces = stored_ ? stored_->pieces() : Pieces();
  const size_t num_stored = pieces.size();
  for (const auto& [key, entry] : entries_) {
    if (!entry->is_known) continue;  // it was interrupted
    const std::vector<float>& rows = entry->rows;
    pieces.push_back({key, static_cast<int64_t>(rows.size()),
                      [&rows](std::span<float> out) { std::ranges::copy(rows, out.begin()); }});
  }
  if (pieces.size() == num_stored && std::filesystem::exists(file_)) return;
  std::ranges::sort(pieces, {}, &Piece::key);
  CacheParts(std::move(pieces), encoding_.width).write(file_, encoding_);
}

void LeafCache::close() {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) save();
  is_closed_ = true;
  stored_.reset();
  entries_.clear();
#ifdef __GLIBC__
  malloc_trim(0);  // a program may have chosen to keep what is freed, and this will not be wanted again
#endif
}

LeafCache::Counts LeafCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace ramify::train
