#include "io/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace ramify::io {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kMaxExtendedHeader = int64_t{1} << 20;  // a long name or a pax header
constexpr size_t kMaxFiles = size_t{1} << 26;

// The fields of a header block, by place and length.
struct Field {
  size_t begin, length;
};
constexpr Field kName = {0, 100}, kSize = {124, 12}, kChecksum = {148, 8}, kLink = {157, 100}, kMagic = {257, 6},
                kPrefix = {345, 155};
constexpr size_t kType = 156;

using Block = std::array<char, kBlock>;

std::string_view text_of(const Block& block, Field field) {
  const std::string_view all(block.data() + field.begin, field.length);
  return all.substr(0, all.find('\0'));
}

// Octal digits between spaces, or base 256 (GNU) where the first bit is set. Nothing: not a number, or negative.
std::optional<int64_t> number_of(const Block& block, Field field) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(block.data()) + field.begin;
  int64_t value = 0;
  if (bytes[0] & 0x80) {
    if (bytes[0] != 0x80) return std::nullopt;  // 0xFF: negative
    for (size_t i = 1; i < field.length; ++i) {
      if (value >> 54) return std::nullopt;
      value = value << 8 | bytes[i];
    }
    return value;
  }
  std::string_view digits = text_of(block, field);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  if (digits.empty()) return 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// The sum of all bytes, its own field taken as spaces; some old writers summed signed bytes.
bool checksum_holds(const Block& block) {
  int64_t plain = 0;
  int64_t with_sign = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kChecksum.begin && i < kChecksum.begin + kChecksum.length;
    const char c = own ? ' ' : block[i];
    plain += static_cast<unsigned char>(c);
    with_sign += static_cast<signed char>(c);
  }
  const auto expected = number_of(block, kChecksum);
  return expected && (*expected == plain || *expected == with_sign);
}

std::string full_name(const Block& block) {
  const std::string name(text_of(block, kName));
  const bool posix = std::string_view(block.data() + kMagic.begin, kMagic.length) == std::string_view("ustar\0", 6);
  const std::string_view prefix = posix ? text_of(block, kPrefix) : std::string_view();
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

std::string_view without_dot(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return name;
}

}  // namespace

// Walks the headers from entry to entry.
class TarIndex::Walk {
 public:
  explicit Walk(TarIndex& index) : index_(index), file_(index.file_) {}

  void run() {
    if (file_.size() < 0) throw Error(file_.name() + ": is no ordinary file; expected an uncompressed tar");
    if (file_.size() == 0) fail("the archive is empty");
    while (at_ < file_.size()) {
      Block block;
      file_.read_at(at_, std::as_writable_bytes(std::span(block)));
      if (std::all_of(block.begin(), block.end(), [](char c) { return c == 0; })) return;  // the end mark
      if (!checksum_holds(block)) fail("no tar header");
      entry(block);
    }
  }

 private:
  // What the headers before an entry say about it.
  struct Extension {
    std::string name;
    std::string link;
    std::optional<int64_t> size;
    bool sparse = false;
  };

  // Records "LENGTH key=value\n". False: not of that form.
  static bool parse_pax(std::string_view records, Extension& extension) {
    while (!records.empty()) {
      size_t length = 0;
      const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(end - records.data());
      if (error != std::errc() || length > records.size() || length < digits + 3 || *end != ' ') return false;
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      const size_t equals = record.find('=');
      if (records[length - 1] != '\n' || equals == record.npos) return false;
      const std::string_view key = record.substr(0, equals);
      const std::string_view value = record.substr(equals + 1);
      if (key == "path") extension.name = value;
      if (key == "linkpath") extension.link = value;
      if (key.starts_with("GNU.sparse.")) extension.sparse = true;
      if (key == "size") {
        int64_t size = -1;
        const auto [stop, bad] = std::from_chars(value.data(), value.data() + value.size(), size);
        if (bad != std::errc() || stop != value.data() + value.size() || size < 0) return false;
        extension.size = size;
      }
      records.remove_prefix(length);
    }
    return true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(file_.name() + ": byte " + std::to_string(at_) + ": " + what + "; expected an uncompressed tar");
  }

  void entry(const Block& block) {
    const char type = block[kType];
    const bool extends = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    const bool has_data = type < '1' || type > '6';
    const auto stated = number_of(block, kSize);
    if (!stated) fail("a size that is no number, negative or huge");
    const int64_t size = has_data ? (extends ? *stated : extension_.size.value_or(*stated)) : 0;
    const int64_t data = at_ + kBlock;
    if (size > file_.size() - data) fail("an entry of " + std::to_string(size) + " bytes goes beyond the end");
    if (extends) {
      extend(type, data, size);
    } else {
      add(type, block, {data, size});
      extension_ = {};
    }
    at_ = data + (size + kBlock - 1) / kBlock * kBlock;
  }

  void extend(char type, int64_t data, int64_t size) {
    if (size > kMaxExtendedHeader) fail("an extended header of " + std::to_string(size) + " bytes");
    std::string text(static_cast<size_t>(size), '\0');
    file_.read_at(data, std::as_writable_bytes(std::span(text)));
    if (type == 'x' && !parse_pax(text, extension_)) fail("a broken pax header");
    if (type == 'L') extension_.name = text.substr(0, text.find('\0'));
    if (type == 'K') extension_.link = text.substr(0, text.find('\0'));
  }

  void add(char type, const Block& block, Entry place) {
    const std::string name = extension_.name.empty() ? full_name(block) : extension_.name;
    const bool is_file = type == '0' || type == '\0' || type == '7';
    if (type == '1') {  // another name of a file before it
      const std::string link = extension_.link.empty() ? std::string(text_of(block, kLink)) : extension_.link;
      const auto target = index_.entries_.find(without_dot(link));
      if (target == index_.entries_.end()) return;
      place = target->second;
    } else if (!is_file || extension_.sparse || name.ends_with('/')) {
      return;
    }
    if (index_.entries_.size() >= kMaxFiles) fail("more than " + std::to_string(kMaxFiles) + " files");
    index_.entries_.insert_or_assign(std::string(without_dot(name)), place);  // the last of a name counts, as in tar
  }

  TarIndex& index_;
  const InputFile& file_;
  int64_t at_ = 0;
  Extension extension_;
};

TarIndex::TarIndex(std::string path) : file_(std::move(path)) {
  Walk(*this).run();
}

bool TarIndex::contains(std::string_view name) const {
  return entries_.contains(without_dot(name));
}

std::vector<std::string> TarIndex::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<uint8_t> TarIndex::read(std::string_view name, size_t max_bytes) const {
  const auto found = entries_.find(without_dot(name));
  if (found == entries_.end()) throw Error(path() + ": has no file " + printable(name));
  const auto [offset, size] = found->second;
  if (static_cast<uint64_t>(size) > max_bytes) {
    throw Error(path() + ": " + printable(name) + " has " + std::to_string(size) + " bytes; expected at most " +
                std::to_string(max_bytes));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  file_.read_at(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace ramify::io
