// The memory of attention while a sequence grows: what later tokens can still see of it, O(b log N) rows a head instead
// of N (docs/generation.md). One object a layer, for one sequence or a batch of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ramify/options.h"

namespace ramify {

struct CacheOptions {
  int64_t heads = 1;
  int64_t key_heads = 1;  // divides heads
  int64_t dim = 0;
  int64_t value_dim = 0;
  // Windows from the bottom up, as for windows(): `16*`, `2,4,8,16`. A 0 is a level whose nodes only the caller closes:
  // `0,16*` for sentences of any length, in windows of 16.
  std::string hierarchy = "16*";
  Tie tie = Tie::none;          // none: left siblings; block: as causal=prefix
  int64_t window = 0;           // tie none: so many tokens before the last are seen one by one
  std::optional<double> scale;  // 1/sqrt(dim)
  std::string owner;            // what the numbers belong to, such as a model; restore() refuses another
};

// Numbers are float32 on the CPU. Errors are c10::ValueError, and the cache is then as it was.
class HierarchicalCache {
 public:
  explicit HierarchicalCache(const CacheOptions& options, int64_t sequences = 1);
  HierarchicalCache(const HierarchicalCache& other);  // a fork: both go on by themselves
  HierarchicalCache& operator=(const HierarchicalCache& other);
  HierarchicalCache(HierarchicalCache&&) noexcept;
  HierarchicalCache& operator=(HierarchicalCache&&) noexcept;
  ~HierarchicalCache();

  // q [S, n, H, d], k [S, n, Hkv, d], v [S, n, Hkv, dv] of n more tokens in each of the S sequences -> [S, n, H, dv]:
  // the rows that attention(causal) over the whole sequences would have for them. Many at once give what one by one
  // gives. With `sequence` S is 1 and only that one grows.
  at::Tensor append(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    std::optional<int64_t> sequence = std::nullopt);
  // The rows of queries [S, n, H, d] that are no tokens and stay out of the cache; tie none.
  at::Tensor look(const at::Tensor& q) const;

  // The open nodes up to this level are complete: a sentence ends (level 1 holds tokens), a paragraph (2), ... Takes
  // effect with the next token.
  void close(int64_t level = 1, std::optional<int64_t> sequence = std::nullopt);
  // Forgets the last tokens of every sequence. They must be open still: at most max_roll_back().
  void roll_back(int64_t tokens);
  int64_t max_roll_back() const;

  // Sequence i becomes a copy of what was `sequences[i]`: beam search, shared prompts. Another number is possible.
  void reorder(std::span<const int64_t> sequences);

  const CacheOptions& options() const;
  int64_t num_sequences() const;
  int64_t tokens(int64_t sequence = 0) const;
  int64_t bytes() const;  // of all sequences

  // Everything, with a checksum. restore() takes a cache of the same options only.
  std::string serialize() const;
  static HierarchicalCache restore(std::string_view bytes, const CacheOptions& options);
  static HierarchicalCache restore(std::string_view bytes);  // with the options that are stored

 private:
  struct State;
  explicit HierarchicalCache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ramify
