// A cache as bytes: one line of JSON that says what the numbers are and has their SHA-256, then the numbers, little
// endian. Bytes are not trusted: sizes are checked before memory is asked for.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "cache/cache_state.h"
#include "io/sha256.h"

namespace ramify {
namespace {

using nlohmann::json;
using Paths = std::vector<std::vector<cpu::OpenPath>>;

constexpr const char* kFormat = "ramify-cache";
constexpr int64_t kVersion = 1;
constexpr size_t kLongestHeader = 1 << 16;

class NumberWriter {
 public:
  void add(int64_t number) { append(&number, sizeof(number)); }
  template <class Number>
  void add(const std::vector<Number>& numbers) {
    add(static_cast<int64_t>(numbers.size()));
    append(numbers.data(), numbers.size() * sizeof(Number));
  }
  std::string take() { return std::move(bytes_); }

 private:
  void append(const void* from, size_t size) { bytes_.append(static_cast<const char*>(from), size); }
  std::string bytes_;
};

[[noreturn]] void fail(const std::string& what) {
  TORCH_CHECK_VALUE(false, "cache: broken bytes: ", what);
}

class NumberReader {
 public:
  explicit NumberReader(std::string_view bytes) : bytes_(bytes) {}
  int64_t number() {
    int64_t value = 0;
    take(&value, sizeof(value));
    return value;
  }
  template <class Number>
  std::vector<Number> numbers() {
    const int64_t count = number();
    if (count < 0 || count > static_cast<int64_t>(bytes_.size() / sizeof(Number))) fail("they end too early");
    std::vector<Number> values(count);
    take(values.data(), values.size() * sizeof(Number));
    return values;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  void take(void* to, size_t size) {
    if (size > bytes_.size()) fail("they end too early");
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }
  std::string_view bytes_;
};

void write_path(const cpu::OpenPath::State& state, NumberWriter& out) {
  out.add(state.tokens);
  out.add(static_cast<int64_t>(state.levels.size()));
  for (const cpu::OpenPath::Level& level : state.levels) {
    out.add(level.k), out.add(level.v), out.add(level.sizes), out.add(level.query_sums), out.add(level.energies);
  }
  out.add(state.recent_k), out.add(state.recent_v);
  out.add(static_cast<int64_t>(state.closes.size()));
  for (const cpu::OpenPath::Close& close : state.closes) out.add(close.tokens), out.add(close.level);
}

cpu::OpenPath::State read_path(NumberReader& in) {
  cpu::OpenPath::State state;
  state.tokens = in.number();
  const int64_t levels = in.number();
  if (levels < 1 || levels > cpu::kMostLevels) fail("no such number of levels");
  state.levels.resize(levels);
  for (cpu::OpenPath::Level& level : state.levels) {
    level.k = in.numbers<float>(), level.v = in.numbers<float>(), level.sizes = in.numbers<int64_t>();
    level.query_sums = in.numbers<float>(), level.energies = in.numbers<float>();
  }
  state.recent_k = in.numbers<float>(), state.recent_v = in.numbers<float>();
  const int64_t closes = in.number();
  if (closes < 0) fail("no such number of closed nodes");
  for (int64_t i = 0; i < closes; ++i) {
    const int64_t tokens = in.number();
    state.closes.push_back({tokens, in.number()});
  }
  return state;
}

// Whether two heads of a sequence have the same tree: their numbers differ, the rest must not.
bool same_tree(const cpu::OpenPath::State& a, const cpu::OpenPath::State& b) {
  const auto same_sizes = [](const cpu::OpenPath::Level& x, const cpu::OpenPath::Level& y) {
    return x.sizes == y.sizes;
  };
  return a.tokens == b.tokens && a.closes == b.closes &&
         std::equal(a.levels.begin(), a.levels.end(), b.levels.begin(), b.levels.end(), same_sizes);
}

struct Parts {
  json header;
  std::string_view numbers;
};

Parts parts_of(std::string_view bytes) {
  const size_t end = bytes.substr(0, kLongestHeader).find('\n');
  if (end == std::string_view::npos) fail("no header");
  Parts parts = {json::parse(bytes.substr(0, end), nullptr, /*allow_exceptions=*/false), bytes.substr(end + 1)};
  if (!parts.header.is_object() || parts.header.value("format", json()) != kFormat) fail("no header of a cache");
  if (parts.header.value("version", json()) != kVersion) {
    fail("version " + parts.header.value("version", json()).dump() + "; this program reads " +
         std::to_string(kVersion));
  }
  return parts;
}

}  // namespace

std::string write_cache(const CacheOptions& options, const Paths& sequences) {
  NumberWriter out;
  out.add(static_cast<int64_t>(sequences.size()));
  for (const auto& sequence : sequences) {
    for (const cpu::OpenPath& path : sequence) write_path(path.state(), out);
  }
  const std::string numbers = out.take();
  json header = {{"format", kFormat},
                 {"version", kVersion},
                 {"heads", options.heads},
                 {"key_heads", options.key_heads},
                 {"dim", options.dim},
                 {"value_dim", options.value_dim},
                 {"hierarchy", options.hierarchy},
                 {"tie", options.tie == Tie::none ? "none" : "block"},
                 {"window", options.window},
                 {"owner", options.owner},
                 {"sha256", io::sha256_hex(numbers)}};
  if (options.scale) header["scale"] = *options.scale;
  return header.dump() + "\n" + numbers;
}

CacheOptions read_cache_options(std::string_view bytes) {
  const Parts parts = parts_of(bytes);
  CacheOptions options;
  try {
    const json& header = parts.header;
    options.heads = header.at("heads"), options.key_heads = header.at("key_heads");
    options.dim = header.at("dim"), options.value_dim = header.at("value_dim");
    options.hierarchy = header.at("hierarchy"), options.window = header.at("window");
    options.owner = header.at("owner");
    const std::string tie = header.at("tie");
    if (tie != "none" && tie != "block") fail("tie is " + tie);
    options.tie = tie == "none" ? Tie::none : Tie::block;
    if (header.contains("scale")) options.scale = header.at("scale").get<double>();
    if (header.at("sha256") != io::sha256_hex(parts.numbers)) fail("the checksum does not fit");
  } catch (const json::exception& error) {
    fail(std::string("the header is not that of a cache: ") + error.what());
  }
  return options;
}

Paths read_cache(std::string_view bytes, const cpu::PathShape& shape, int64_t key_heads) {
  NumberReader in(parts_of(bytes).numbers);
  const int64_t count = in.number();
  if (count < 1) fail("no sequences");
  Paths sequences;
  for (int64_t s = 0; s < count; ++s) {
    std::vector<cpu::OpenPath> paths;
    for (int64_t g = 0; g < key_heads; ++g) {
      cpu::OpenPath::State state = read_path(in);
      if (g > 0 && !same_tree(state, paths.front().state())) fail("heads have different trees");
      try {
        paths.emplace_back(shape, std::move(state));
      } catch (const std::invalid_argument& error) {
        fail(error.what());
      }
    }
    sequences.push_back(std::move(paths));
  }
  if (!in.at_end()) fail("there are more of them than a cache has");
  return sequences;
}

}  // namespace ramify
