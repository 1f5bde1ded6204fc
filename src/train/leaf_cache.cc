#include "train/leaf_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "io/error.h"
#include "io/safetensors.h"
#include "io/sha256.h"

namespace ramify::train {
namespace {

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

// The whole of a cache, as it is stored.
struct StoredCache {
  std::vector<char> keys;
  std::vector<int64_t> begin;
  std::vector<float> rows;
  std::string sha256;  // of the parts, as they come

  explicit StoredCache(const io::SafetensorsReader& file) {
    keys = read_values<char>(file, "keys", "U8");
    begin = read_values<int64_t>(file, "begin", "I64");
    std::string sums = io::sha256_hex(bytes_of(keys)) + io::sha256_hex(bytes_of(begin));
    for (size_t part = 0; file.find(part_name(part)); ++part) {
      const auto values = read_values<float>(file, part_name(part), "F32");
      sums += io::sha256_hex(bytes_of(values));
      rows.insert(rows.end(), values.begin(), values.end());
    }
    sha256 = io::sha256_hex(sums);
  }

  bool fits(int64_t width) const {
    if (begin.empty() || begin.front() != 0 || !std::ranges::is_sorted(begin)) return false;
    const auto total = static_cast<int64_t>(rows.size());
    return keys.size() == (begin.size() - 1) * kDigits && total % width == 0 && begin.back() == total / width;
  }
};

// By key, in order.
using Pieces = std::vector<std::pair<std::string_view, std::span<const float>>>;

// Pieces as they are written: the rows in parts, so that there is never a second copy of all of them.
class CacheParts {
 public:
  CacheParts(Pieces pieces, int64_t width) : pieces_(std::move(pieces)), width_(width) {
    int64_t bytes = kMaxRowsBytes;
    for (const auto& [key, rows] : pieces_) {
      if (bytes >= kMaxRowsBytes) part_begin_.push_back(begin_.size() - 1), bytes = 0;
      keys_.insert(keys_.end(), key.begin(), key.end());
      begin_.push_back(begin_.back() + static_cast<int64_t>(rows.size()) / width);
      bytes += static_cast<int64_t>(rows.size_bytes());
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
    std::vector<float> values;
    for (size_t i = part_begin_[part]; i < part_begin_[part + 1]; ++i) {
      values.insert(values.end(), pieces_[i].second.begin(), pieces_[i].second.end());
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

LeafCache::LeafCache(const signal::LeafEncoding& encoding, std::string file, int64_t max_bytes)
    : encoding_(encoding), file_(std::move(file)), max_bytes_(max_bytes) {
  if (file_.empty()) return;
  check_folder_of(file_);
  if (!std::filesystem::exists(file_)) return;
  try {
    load();
  } catch (const io::Error& error) {
    throw io::Error(std::string(error.what()) + kRemove);
  }
}

LeafCache::~LeafCache() = default;

void LeafCache::load() {
  const io::SafetensorsReader file(file_);
  const std::string level = value_of(file.metadata(), "level"), model = value_of(file.metadata(), "model");
  if (model.empty()) throw io::Error(file_ + ": is no cache of --leaf-cache");
  if (model != encoding_.sha256) throw io::Error(file_ + ": has the vectors of another model than " + encoding_.model);
  if (level != name_of(encoding_.level)) {
    throw io::Error(file_ + ": has the vectors of --leaf-level " + io::printable(level) + ", not " +
                    std::string(name_of(encoding_.level)));
  }
  StoredCache stored(file);
  if (!stored.fits(encoding_.width) || stored.sha256 != value_of(file.metadata(), "sha256")) {
    throw io::Error(file_ + ": is broken");
  }
  loaded_rows_ = std::move(stored.rows);
  const auto width = static_cast<size_t>(encoding_.width);
  for (size_t i = 0; i + 1 < stored.begin.size(); ++i) {
    const auto first = static_cast<size_t>(stored.begin[i]), last = static_cast<size_t>(stored.begin[i + 1]);
    loaded_.emplace(std::string(stored.keys.data() + i * kDigits, kDigits),
                    std::span(loaded_rows_).subspan(first * width, (last - first) * width));
  }
}

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
  if (const auto found = loaded_.find(key); found != loaded_.end()) {
    count(0, 0);
    return {found->second.begin(), found->second.end()};
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
  Pieces pieces(loaded_.begin(), loaded_.end());
  for (const auto& [key, entry] : entries_) {
    if (entry->is_known) pieces.emplace_back(key, entry->rows);  // not if it was interrupted
  }
  if (pieces.size() == loaded_.size() && std::filesystem::exists(file_)) return;
  std::ranges::sort(pieces, {}, [](const auto& piece) { return piece.first; });
  CacheParts(std::move(pieces), encoding_.width).write(file_, encoding_);
}

void LeafCache::close() {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) save();
  is_closed_ = true;
  loaded_.clear();
  loaded_rows_ = {};
  entries_.clear();
}

LeafCache::Counts LeafCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace ramify::train
