// What a growing sequence leaves of itself for the tokens to come: the complete nodes to the left of the path from its
// last token to the root (docs/generation.md). One layer, one key head and the heads that share it, so that threads can
// share heads.
#pragma once

#include <cstdint>
#include <vector>

#include "ramify/options.h"

namespace ramify::cpu {

struct PathShape {
  int64_t group = 1;  // heads that share the keys
  int64_t dim = 0;
  int64_t value_dim = 0;
  std::vector<int64_t> branching;  // children a node, from the bottom up; 0: as many as come until the caller closes it
  bool repeats_last = false;       // else all that is above the last level is one family
  Tie tie = Tie::none;             // block: as causal=prefix
  int64_t window = 0;              // tie none: so many tokens before the last are seen one by one
  float scale = 1;
  bool operator==(const PathShape&) const = default;
};

// More levels than any sequence has, with two children a node.
inline constexpr int64_t kMaxLevels = 62;
// Of one whose caller has closed nodes of all of them.
inline constexpr int64_t kMostLevels = 2 * kMaxLevels;
inline constexpr int64_t kMostTokens = int64_t{1} << 60;

class OpenPath {
 public:
  explicit OpenPath(const PathShape& shape);

  // One token: q and out are [group] rows, each so many floats behind the last.
  struct Token {
    const float *q = nullptr, *k = nullptr, *v = nullptr;
    float* out = nullptr;
    int64_t q_stride = 0, out_stride = 0;
  };
  // The last row of attention over all tokens so far and this one, which then belongs to them.
  void append(const Token& token);
  // The row of a query that is no token (k and v are not read). Tie none. Zeros before the first token.
  void look(const Token& query) const;

  // The open nodes of levels up to this one are complete, and the next token begins new ones. Level 1 holds tokens.
  void close(int64_t level);
  // Forgets the last tokens, at most max_roll_back().
  void roll_back(int64_t tokens);
  // All tokens whose own rows are still there: those of the open family, or the whole sequence before the first fold.
  int64_t max_roll_back() const;

  int64_t tokens() const { return tokens_; }
  int64_t bytes() const;

  // Complete nodes that are children of one open node.
  struct Level {
    std::vector<float> k, v;        // [nodes][dim], [nodes][value_dim]: means over their leaves
    std::vector<int64_t> sizes;     // leaves below each
    std::vector<float> log_sizes;   // their logarithms
    std::vector<float> query_sums;  // tie block: [nodes][group][dim]
    std::vector<float> energies;    // tie block: [nodes][group] |C| t(C)

    int64_t count() const { return static_cast<int64_t>(sizes.size()); }
  };
  // A close that waits until its tokens are in the tree, and for the next token, so that it can be taken back.
  struct Close {
    int64_t tokens = 0;
    int64_t level = 0;
    bool operator==(const Close&) const = default;
  };
  // All there is of a sequence.
  struct State {
    int64_t tokens = 0;
    std::vector<Level> levels;              // of leaves first
    std::vector<float> recent_k, recent_v;  // the window, oldest first
    std::vector<Close> closes;              // in the order of tokens
  };
  State state() const;
  // std::invalid_argument: no sequence of this shape can be in that state.
  OpenPath(const PathShape& shape, State state);

 private:
  // The window. Rows before `begin` are gone; they are cleared away when they are as many as the window.
  struct Recent {
    std::vector<float> k, v;
    int64_t begin = 0, end = 0;
    int64_t count() const { return end - begin; }
  };

  int64_t tokens_in_tree() const { return tokens_ - recent_.count(); }
  int64_t capacity(int64_t level) const;
  void begin_leaf();
  void fold(int64_t levels);
  void add_leaf(const Token& token, const std::vector<float>& energies);
  void add_recent(const float* k, const float* v);
  // tie block: the open node of a level, as far as it has come.
  struct Open {
    std::vector<float> query_sum;
    double count = 0;   // leaves
    double energy = 0;  // count times e, or t
    void join(const Level& level, const PathShape& shape, int64_t head);
    std::vector<float> query() const;
  };
  float climb(const Token& leaf, int64_t head) const;
  std::vector<float> open_energies(int64_t head) const;
  void look_untied(const Token& token, int64_t head, bool sees_itself) const;

  PathShape shape_;
  int64_t tokens_ = 0;
  std::vector<Level> levels_;
  Recent recent_;
  std::vector<Close> closes_;
};

}  // namespace ramify::cpu
