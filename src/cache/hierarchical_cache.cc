#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cache/cache_state.h"

namespace ramify {
namespace {

using Paths = std::vector<std::vector<cpu::OpenPath>>;

constexpr int64_t kWidestWindow = int64_t{1} << 31;
constexpr size_t kLongestOwner = 4096;
constexpr int64_t kMaxSequences = int64_t{1} << 20;
// Multiply-adds below which threads would wait for each other longer than they work.
constexpr int64_t kSerialWork = int64_t{1} << 20;

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char letter) { return static_cast<unsigned char>(letter) < 128; });
}

// `16*`, `0,4,16*`
void read_hierarchy(const std::string& text, cpu::PathShape& shape) {
  const auto fail = [&] {
    TORCH_CHECK_VALUE(false, "cache: hierarchy is '", text,
                      "'; expected window sizes from 2 on, or 0, from the bottom up: 16* or 2,4,8,16 or 0,16*");
  };
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    if (end == text.size() && part.size() > 1 && part.back() == '*') {
      part.pop_back();
      shape.repeats_last = true;
    }
    if (part.empty() || part.size() > 9 || part.find_first_not_of("0123456789") != std::string::npos) fail();
    const int64_t size = std::stoll(part);
    if (size == 1 || (size == 0 && shape.repeats_last)) fail();
    shape.branching.push_back(size);
    begin = end + 1;
  }
  if (static_cast<int64_t>(shape.branching.size()) >= cpu::kMaxLevels) fail();
}

// [S, n, heads, dim], float32, on the CPU.
at::Tensor rows_of(const at::Tensor& given, const char* name, int64_t sequences, int64_t heads, int64_t dim) {
  TORCH_CHECK_VALUE(given.dim() == 4 && given.size(0) == sequences && given.size(2) == heads && given.size(3) == dim,
                    "cache: ", name, " has shape ", given.sizes(), "; expected [", sequences, ", n, ", heads, ", ", dim,
                    "]");
  TORCH_CHECK_VALUE(given.is_cpu(), "cache: ", name, " is on ", given.device(), "; a cache is on the CPU");
  TORCH_CHECK_VALUE(given.is_floating_point(), "cache: ", name, " is ", given.scalar_type(),
                    "; expected floating point numbers");
  return given.detach().to(at::kFloat).contiguous();
}

// step(path, sequence, key head) for all of them.
template <class Step>
void for_each_path(int64_t sequences, int64_t key_heads, int64_t work, const Step& step) {
  const int64_t count = sequences * key_heads;
  at::parallel_for(0, count, work * count < kSerialWork ? count : 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) step(i / key_heads, i % key_heads);
  });
}

}  // namespace

cpu::PathShape path_shape(const CacheOptions& o) {
  TORCH_CHECK_VALUE(o.heads > 0 && o.key_heads > 0 && o.heads % o.key_heads == 0, "cache: ", o.key_heads,
                    " key heads, ", o.heads, " heads; key heads must divide heads");
  TORCH_CHECK_VALUE(
      o.dim > 0 && o.value_dim >= 0 && o.dim <= (1 << 16) && o.value_dim <= (1 << 16) && o.heads <= (1 << 16),
      "cache: ", o.heads, " heads of ", o.dim, " and ", o.value_dim, " dimensions; expected 1 to 65536");
  TORCH_CHECK_VALUE(o.window >= 0 && o.window <= kWidestWindow, "cache: window is ", o.window, "; expected 0 to ",
                    kWidestWindow);
  TORCH_CHECK_VALUE(o.owner.size() <= kLongestOwner && is_ascii(o.owner), "cache: the owner has ", o.owner.size(),
                    " bytes; expected a name of at most ", kLongestOwner, " ASCII letters");
  TORCH_CHECK_VALUE(o.window == 0 || o.tie == Tie::none, "cache: a window needs tie=none");
  cpu::PathShape shape;
  shape.group = o.heads / o.key_heads, shape.dim = o.dim, shape.value_dim = o.value_dim;
  shape.tie = o.tie, shape.window = o.window;
  shape.scale = static_cast<float>(o.scale.value_or(1 / std::sqrt(static_cast<double>(o.dim))));
  read_hierarchy(o.hierarchy, shape);
  return shape;
}

HierarchicalCache::HierarchicalCache(std::unique_ptr<State> state) : state_(std::move(state)) {}
HierarchicalCache::HierarchicalCache(const CacheOptions& options, int64_t sequences)
    : state_(std::make_unique<State>(options, path_shape(options))) {
  TORCH_CHECK_VALUE(sequences >= 1 && sequences <= kMaxSequences, "cache: ", sequences,
                    " sequences; expected 1 to 1048576");
  state_->sequences.assign(sequences, std::vector(options.key_heads, cpu::OpenPath(state_->shape)));
}
HierarchicalCache::HierarchicalCache(const HierarchicalCache& other) : state_(std::make_unique<State>(*other.state_)) {}
HierarchicalCache& HierarchicalCache::operator=(const HierarchicalCache& other) {
  state_ = std::make_unique<State>(*other.state_);
  return *this;
}
HierarchicalCache::HierarchicalCache(HierarchicalCache&&) noexcept = default;
HierarchicalCache& HierarchicalCache::operator=(HierarchicalCache&&) noexcept = default;
HierarchicalCache::~HierarchicalCache() = default;

at::Tensor HierarchicalCache::append(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     std::optional<int64_t> sequence) {
  const CacheOptions& o = state_->options;
  TORCH_CHECK_VALUE(!sequence || (*sequence >= 0 && *sequence < num_sequences()), "cache: sequence ",
                    sequence.value_or(0), "; there are ", num_sequences());
  const int64_t first = sequence.value_or(0), count = sequence ? 1 : num_sequences();
  const at::Tensor queries = rows_of(q, "q", count, o.heads, o.dim), keys = rows_of(k, "k", count, o.key_heads, o.dim),
                   values = rows_of(v, "v", count, o.key_heads, o.value_dim);
  const int64_t n = queries.size(1), group = state_->shape.group;
  TORCH_CHECK_VALUE(keys.size(1) == n && values.size(1) == n, "cache: q, k and v have ", n, ", ", keys.size(1), " and ",
                    values.size(1), " tokens");
  at::Tensor out = at::empty({count, n, o.heads, o.value_dim}, at::kFloat);
  const auto *q_rows = queries.const_data_ptr<float>(), *k_rows = keys.const_data_ptr<float>(),
             *v_rows = values.const_data_ptr<float>();
  auto* out_rows = out.mutable_data_ptr<float>();
  // every token looks at a few dozen rows
  for_each_path(count, o.key_heads, n * group * 64 * (o.dim + o.value_dim), [&](int64_t s, int64_t g) {
    cpu::OpenPath& path = state_->sequences[first + s][g];
    for (int64_t i = s * n; i < (s + 1) * n; ++i) {
      path.append({.q = q_rows + (i * o.heads + g * group) * o.dim,
                   .k = k_rows + (i * o.key_heads + g) * o.dim,
                   .v = v_rows + (i * o.key_heads + g) * o.value_dim,
                   .out = out_rows + (i * o.heads + g * group) * o.value_dim,
                   .q_stride = o.dim,
                   .out_stride = o.value_dim});
    }
  });
  return out.to(v.scalar_type());
}

at::Tensor HierarchicalCache::look(const at::Tensor& q) const {
  const CacheOptions& o = state_->options;
  TORCH_CHECK_VALUE(o.tie == Tie::none, "cache: look needs tie=none; a tied query is that of its tokens together");
  const at::Tensor queries = rows_of(q, "q", num_sequences(), o.heads, o.dim);
  const int64_t n = queries.size(1), group = state_->shape.group;
  at::Tensor out = at::empty({num_sequences(), n, o.heads, o.value_dim}, at::kFloat);
  const auto* q_rows = queries.const_data_ptr<float>();
  auto* out_rows = out.mutable_data_ptr<float>();
  for_each_path(num_sequences(), o.key_heads, n * group * 64 * (o.dim + o.value_dim), [&](int64_t s, int64_t g) {
    for (int64_t i = s * n; i < (s + 1) * n; ++i) {
      state_->sequences[s][g].look({.q = q_rows + (i * o.heads + g * group) * o.dim,
                                    .out = out_rows + (i * o.heads + g * group) * o.value_dim,
                                    .q_stride = o.dim,
                                    .out_stride = o.value_dim});
    }
  });
  return out.to(q.scalar_type());
}

void HierarchicalCache::close(int64_t level, std::optional<int64_t> sequence) {
  const cpu::PathShape& shape = state_->shape;
  const int64_t highest = shape.repeats_last ? cpu::kMaxLevels - 1 : static_cast<int64_t>(shape.branching.size());
  TORCH_CHECK_VALUE(level >= 1 && level <= highest, "cache: close(", level, "); the hierarchy ",
                    state_->options.hierarchy, " has levels 1 to ", highest);
  TORCH_CHECK_VALUE(!sequence || (*sequence >= 0 && *sequence < num_sequences()), "cache: sequence ",
                    sequence.value_or(0), "; there are ", num_sequences());
  for (int64_t s = 0; s < num_sequences(); ++s) {
    if (sequence && s != *sequence) continue;
    for (cpu::OpenPath& path : state_->sequences[s]) path.close(level);
  }
}

void HierarchicalCache::roll_back(int64_t tokens) {
  TORCH_CHECK_VALUE(tokens >= 0 && tokens <= max_roll_back(), "cache: cannot roll back ", tokens, " tokens; ",
                    max_roll_back(), " are open still, and older ones are pooled");
  for (auto& sequence : state_->sequences) {
    for (cpu::OpenPath& path : sequence) path.roll_back(tokens);
  }
}

int64_t HierarchicalCache::max_roll_back() const {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const auto& sequence : state_->sequences) most = std::min(most, sequence[0].max_roll_back());
  return most;
}

void HierarchicalCache::reorder(std::span<const int64_t> sequences) {
  TORCH_CHECK_VALUE(!sequences.empty() && static_cast<int64_t>(sequences.size()) <= kMaxSequences,
                    "cache: reorder with ", sequences.size(), " sequences; expected 1 to 1048576");
  Paths ordered;
  for (const int64_t s : sequences) {
    TORCH_CHECK_VALUE(s >= 0 && s < num_sequences(), "cache: reorder: sequence ", s, "; there are ", num_sequences());
    ordered.push_back(state_->sequences[s]);
  }
  state_->sequences = std::move(ordered);
}

const CacheOptions& HierarchicalCache::options() const {
  return state_->options;
}
int64_t HierarchicalCache::num_sequences() const {
  return static_cast<int64_t>(state_->sequences.size());
}
int64_t HierarchicalCache::tokens(int64_t sequence) const {
  TORCH_CHECK_VALUE(sequence >= 0 && sequence < num_sequences(), "cache: sequence ", sequence, "; there are ",
                    num_sequences());
  return state_->sequences[sequence][0].tokens();
}
int64_t HierarchicalCache::bytes() const {
  int64_t bytes = 0;
  for (const auto& sequence : state_->sequences) {
    for (const cpu::OpenPath& path : sequence) bytes += path.bytes();
  }
  return bytes;
}

std::string HierarchicalCache::serialize() const {
  return write_cache(state_->options, state_->sequences);
}
HierarchicalCache HierarchicalCache::restore(std::string_view bytes) {
  const CacheOptions options = read_cache_options(bytes);
  auto state = std::make_unique<State>(options, path_shape(options));
  state->sequences = read_cache(bytes, state->shape, options.key_heads);
  return HierarchicalCache(std::move(state));
}
HierarchicalCache HierarchicalCache::restore(std::string_view bytes, const CacheOptions& options) {
  const CacheOptions stored = read_cache_options(bytes);
  TORCH_CHECK_VALUE(stored.owner == options.owner, "cache: belongs to '", stored.owner, "', not to '", options.owner,
                    "'");
  TORCH_CHECK_VALUE(stored.heads == options.heads && stored.key_heads == options.key_heads &&
                        path_shape(stored) == path_shape(options),
                    "cache: was made with other options: ", stored.heads, " heads (", stored.key_heads, " of keys) of ",
                    stored.dim, " and ", stored.value_dim, " dimensions, hierarchy ", stored.hierarchy, ", tie ",
                    stored.tie == Tie::none ? "none" : "block", ", window ", stored.window);
  return restore(bytes);
}

}  // namespace ramify
