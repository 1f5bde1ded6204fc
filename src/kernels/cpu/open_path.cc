#include "kernels/cpu/open_path.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "kernels/cpu/running_softmax.h"

namespace ramify::cpu {
namespace {

void add_row(std::vector<float>& rows, const float* row, int64_t width) {
  rows.insert(rows.end(), row, row + width);
}

// The mean over all leaves of a level, one row more in the level above.
void add_mean(const std::vector<float>& rows, const std::vector<int64_t>& sizes, int64_t leaves, int64_t width,
              std::vector<float>& above) {
  const size_t begin = above.size();
  above.resize(begin + static_cast<size_t>(width), 0.0f);
  for (size_t j = 0; j < sizes.size(); ++j) {
    const float share = static_cast<float>(sizes[j]) / static_cast<float>(leaves);
    add_scaled(share, rows.data() + static_cast<int64_t>(j) * width, above.data() + begin, width);
  }
}

void add_sum(const std::vector<float>& rows, int64_t width, std::vector<float>& above) {
  const size_t begin = above.size();
  above.resize(begin + static_cast<size_t>(width), 0.0f);
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(width)) {
    add_scaled(1, rows.data() + at, above.data() + begin, width);
  }
}

KeyRows rows_of(const OpenPath::Level& level) {
  return {level.k.data(), level.v.data(), level.log_sizes.data(), level.count()};
}

int64_t numbers_in(const OpenPath::Level& level) {
  return static_cast<int64_t>(level.k.size() + level.v.size() + level.log_sizes.size() + level.query_sums.size() +
                              level.energies.size());
}

}  // namespace

OpenPath::OpenPath(const PathShape& shape) : shape_(shape), levels_(1) {}

// Children that a node of the level above has when it is complete; 0: any number.
int64_t OpenPath::capacity(int64_t level) const {
  if (level < static_cast<int64_t>(shape_.branching.size())) return shape_.branching[level];
  return shape_.repeats_last ? shape_.branching.back() : 0;
}

// Makes complete what the next leaf of the tree does not belong to: what was closed, and what is full.
void OpenPath::begin_leaf() {
  int64_t closed = 0, complete = 0;
  if (!closes_.empty() && closes_.front().tokens == tokens_in_tree()) {
    closed = closes_.front().level;
    closes_.erase(closes_.begin());
  }
  int64_t incoming = 0;  // 1: the level below becomes one more node of this one
  for (int64_t l = 0; l < std::max(closed, static_cast<int64_t>(levels_.size())); ++l) {
    const int64_t nodes = incoming + (l < static_cast<int64_t>(levels_.size()) ? levels_[l].count() : 0);
    const bool is_full = capacity(l) > 0 && nodes >= capacity(l);
    if (nodes > 0 && !is_full && l >= closed) break;
    incoming = nodes > 0 ? 1 : 0;
    if (nodes > 0) complete = l + 1;
  }
  fold(complete);
}

// Each of the lowest levels becomes a node of the one above it.
void OpenPath::fold(int64_t levels) {
  if (levels == 0 || tokens_in_tree() == 0) return;
  const int64_t group = shape_.group;
  std::vector<std::vector<float>> t;
  for (int64_t h = 0; h < group && shape_.tie == Tie::block; ++h) t.push_back(open_energies(h));
  for (size_t l = 0; l < static_cast<size_t>(levels); ++l) {
    if (l + 1 == levels_.size()) levels_.emplace_back();
    const Level level = std::exchange(levels_[l], {});
    if (level.count() == 0) continue;
    Level& above = levels_[l + 1];
    const int64_t size = std::accumulate(level.sizes.begin(), level.sizes.end(), int64_t{0});
    add_mean(level.k, level.sizes, size, shape_.dim, above.k);
    add_mean(level.v, level.sizes, size, shape_.value_dim, above.v);
    above.sizes.push_back(size);
    above.log_sizes.push_back(std::log(static_cast<float>(size)));
    if (shape_.tie != Tie::block) continue;
    add_sum(level.query_sums, group * shape_.dim, above.query_sums);
    for (const std::vector<float>& of_head : t) {
      const float energy = of_head[std::min(l + 1, of_head.size() - 1)];
      above.energies.push_back(static_cast<float>(size) * energy);
    }
  }
}

// Nodes of a level that are complete join what is open above them.
void OpenPath::Open::join(const Level& level, const PathShape& shape, int64_t head) {
  for (int64_t j = 0; j < level.count(); ++j) {
    const int64_t row = j * shape.group + head;
    energy += level.energies[row];
    count += static_cast<double>(level.sizes[j]);
    add_scaled(1, level.query_sums.data() + row * shape.dim, query_sum.data(), shape.dim);
  }
}

std::vector<float> OpenPath::Open::query() const {
  std::vector<float> mean = query_sum;
  for (float& q : mean) q /= static_cast<float>(count);
  return mean;
}

// docs/algorithm.md, section 5: the row of a leaf, from the leaf up. What it has gathered below an ancestor is one
// entry of the softmax over that ancestor's siblings. Returns t of the leaf.
float OpenPath::climb(const Token& leaf, int64_t head) const {
  const float* q = leaf.q + head * leaf.q_stride;
  float* out = leaf.out + head * leaf.out_stride;
  std::copy_n(leaf.v, shape_.value_dim, out);
  Open open = {.query_sum = {q, q + shape_.dim}, .count = 1, .energy = shape_.scale * dot(q, leaf.k, shape_.dim)};
  float t_of_leaf = 0;
  for (size_t l = 0; l < levels_.size(); ++l) {
    RunningSoftmax softmax = {
        .max = static_cast<float>(open.energy / open.count), .sum = 1, .value = out, .value_dim = shape_.value_dim};
    softmax.see(open.query().data(), shape_.dim, shape_.scale, rows_of(levels_[l]));
    softmax.finish();
    if (l == 0) t_of_leaf = softmax.log_sum();
    open.energy = open.count * softmax.log_sum();
    open.join(levels_[l], shape_, head);
  }
  return t_of_leaf;
}

// t of the open node of each level, were it complete; of the leaves' level nothing.
std::vector<float> OpenPath::open_energies(int64_t head) const {
  Open open = {.query_sum = std::vector<float>(shape_.dim, 0.0f)};
  std::vector<float> t;
  for (const Level& level : levels_) {
    if (open.count > 0) {
      RunningSoftmax softmax = {.max = static_cast<float>(open.energy / open.count), .sum = 1};
      softmax.see(open.query().data(), shape_.dim, shape_.scale, rows_of(level));
      open.energy = open.count * softmax.log_sum();
    }
    t.push_back(static_cast<float>(open.energy / std::max(1.0, open.count)));
    open.join(level, shape_, head);
  }
  t.push_back(static_cast<float>(open.energy / std::max(1.0, open.count)));
  return t;
}

// Section 6: one softmax over all there is.
void OpenPath::look_untied(const Token& token, int64_t head, bool sees_itself) const {
  const int64_t dim = shape_.dim;
  const float* q = token.q + head * token.q_stride;
  float* out = token.out + head * token.out_stride;
  RunningSoftmax softmax = {.max = -INFINITY, .sum = 0, .value = out, .value_dim = shape_.value_dim};
  std::fill_n(out, shape_.value_dim, 0.0f);
  if (sees_itself) softmax.see(q, dim, shape_.scale, {token.k, token.v, nullptr, 1});
  softmax.see(q, dim, shape_.scale,
              {recent_.k.data() + recent_.begin * dim, recent_.v.data() + recent_.begin * shape_.value_dim, nullptr,
               recent_.count()});
  for (const Level& level : levels_) softmax.see(q, dim, shape_.scale, rows_of(level));
  softmax.finish();
}

void OpenPath::look(const Token& query) const {
  for (int64_t h = 0; h < shape_.group; ++h) look_untied(query, h, /*sees_itself=*/false);
}

void OpenPath::append(const Token& token) {
  begin_leaf();
  std::vector<float> energies;
  for (int64_t h = 0; h < shape_.group; ++h) {
    if (shape_.tie == Tie::block) {
      energies.push_back(climb(token, h));
    } else {
      look_untied(token, h, /*sees_itself=*/true);
    }
  }
  ++tokens_;
  if (shape_.window == 0) return add_leaf(token, energies);
  add_recent(token.k, token.v);
  if (recent_.count() <= shape_.window) return;
  const Token oldest = {.k = recent_.k.data() + recent_.begin * shape_.dim,
                        .v = recent_.v.data() + recent_.begin * shape_.value_dim};
  add_leaf(oldest, {});
  ++recent_.begin;
}

void OpenPath::add_leaf(const Token& token, const std::vector<float>& energies) {
  Level& leaves = levels_[0];
  add_row(leaves.k, token.k, shape_.dim);
  add_row(leaves.v, token.v, shape_.value_dim);
  leaves.sizes.push_back(1);
  leaves.log_sizes.push_back(0);
  if (shape_.tie != Tie::block) return;
  for (int64_t h = 0; h < shape_.group; ++h) add_row(leaves.query_sums, token.q + h * token.q_stride, shape_.dim);
  leaves.energies.insert(leaves.energies.end(), energies.begin(), energies.end());
}

void OpenPath::add_recent(const float* k, const float* v) {
  if (recent_.begin > shape_.window) {
    recent_.k.erase(recent_.k.begin(), recent_.k.begin() + recent_.begin * shape_.dim);
    recent_.v.erase(recent_.v.begin(), recent_.v.begin() + recent_.begin * shape_.value_dim);
    recent_.end -= recent_.begin, recent_.begin = 0;
  }
  add_row(recent_.k, k, shape_.dim);
  add_row(recent_.v, v, shape_.value_dim);
  ++recent_.end;
}

void OpenPath::close(int64_t level) {
  if (tokens_ == 0) return;
  if (!closes_.empty() && closes_.back().tokens == tokens_) {
    closes_.back().level = std::max(closes_.back().level, level);
  } else {
    closes_.push_back({tokens_, level});
  }
}

int64_t OpenPath::max_roll_back() const {
  const int64_t leaves = levels_[0].count();
  return leaves == tokens_in_tree() ? tokens_ : leaves;
}

void OpenPath::roll_back(int64_t tokens) {
  // Rows of the last tokens, in the tree and behind it; then the same of the shorter sequence.
  Level& leaves = levels_[0];
  std::vector<float> k = std::move(leaves.k), v = std::move(leaves.v);
  k.insert(k.end(), recent_.k.begin() + recent_.begin * shape_.dim, recent_.k.end());
  v.insert(v.end(), recent_.v.begin() + recent_.begin * shape_.value_dim, recent_.v.end());
  const int64_t folded = tokens_in_tree() - leaves.count();
  tokens_ -= tokens;
  const int64_t rows = tokens_ - folded, in_window = std::min(shape_.window, tokens_), in_tree = rows - in_window;
  recent_.k.assign(k.begin() + in_tree * shape_.dim, k.begin() + rows * shape_.dim);
  recent_.v.assign(v.begin() + in_tree * shape_.value_dim, v.begin() + rows * shape_.value_dim);
  recent_.begin = 0, recent_.end = in_window;
  k.resize(in_tree * shape_.dim), v.resize(in_tree * shape_.value_dim);
  leaves.k = std::move(k), leaves.v = std::move(v);
  leaves.sizes.resize(in_tree), leaves.log_sizes.resize(in_tree);
  if (shape_.tie == Tie::block) {
    leaves.query_sums.resize(in_tree * shape_.group * shape_.dim);
    leaves.energies.resize(in_tree * shape_.group);
  }
  while (!closes_.empty() && closes_.back().tokens > tokens_) closes_.pop_back();
}

int64_t OpenPath::bytes() const {
  int64_t numbers = static_cast<int64_t>(recent_.k.size() + recent_.v.size());
  int64_t nodes = 0;
  for (const Level& level : levels_) numbers += numbers_in(level), nodes += level.count();
  return numbers * static_cast<int64_t>(sizeof(float)) + nodes * static_cast<int64_t>(sizeof(int64_t));
}

OpenPath::State OpenPath::state() const {
  return {.tokens = tokens_,
          .levels = levels_,
          .recent_k = {recent_.k.begin() + recent_.begin * shape_.dim, recent_.k.end()},
          .recent_v = {recent_.v.begin() + recent_.begin * shape_.value_dim, recent_.v.end()},
          .closes = closes_};
}

OpenPath::OpenPath(const PathShape& shape, State state)
    : shape_(shape), tokens_(state.tokens), levels_(std::move(state.levels)), closes_(std::move(state.closes)) {
  const auto require = [](bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(what);
  };
  require(!levels_.empty() && levels_.size() <= kMostLevels && tokens_ >= 0 && tokens_ <= kMostTokens, "no such tree");
  recent_.k = std::move(state.recent_k), recent_.v = std::move(state.recent_v);
  recent_.end = std::min(shape.window, tokens_);
  int64_t in_tree = tokens_ - recent_.end;
  const auto holds = [](const auto& numbers, int64_t rows, int64_t width) {
    const auto count = static_cast<int64_t>(numbers.size());
    return width == 0 || rows == 0 ? count == 0 : count % width == 0 && count / width == rows;
  };
  require(holds(recent_.k, recent_.end, shape.dim) && holds(recent_.v, recent_.end, shape.value_dim),
          "the window has another size");
  const int64_t tied = shape.tie == Tie::block ? shape.group : 0;
  for (size_t l = 0; l < levels_.size(); ++l) {
    Level& level = levels_[l];
    const int64_t nodes = level.count();
    require(holds(level.k, nodes, shape.dim) && holds(level.v, nodes, shape.value_dim) &&
                holds(level.query_sums, nodes, tied * shape.dim) && holds(level.energies, nodes, tied) &&
                (capacity(static_cast<int64_t>(l)) == 0 || nodes <= capacity(static_cast<int64_t>(l))),
            "a level has another size");
    level.log_sizes.clear();
    for (const int64_t size : level.sizes) {
      require(size >= 1 && size <= in_tree && (l > 0 || size == 1), "nodes do not hold the tokens");
      in_tree -= size;
      level.log_sizes.push_back(std::log(static_cast<float>(size)));
    }
  }
  require(in_tree == 0, "nodes do not hold the tokens");
  int64_t last = tokens_in_tree() - 1;
  for (const Close& close : closes_) {
    require(close.tokens > last && close.tokens <= tokens_ && close.level >= 1 && close.level < kMaxLevels,
            "nodes are closed that are not there");
    last = close.tokens;
  }
}

}  // namespace ramify::cpu
