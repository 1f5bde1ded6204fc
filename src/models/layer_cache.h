// What one layer of a decoder remembers of the tokens so far: all their keys and values, or an open path of a
// hierarchy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/attention_plan.h"
#include "models/config.h"

namespace ramify::models {

class LayerCache {
 public:
  virtual ~LayerCache() = default;
  // n more tokens, q [n, H, d], k, v [n, Hkv, d] -> [n, H, d]: their rows of causal attention over all tokens so far.
  virtual at::Tensor append(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) = 0;
  virtual int64_t bytes() const = 0;
  virtual std::unique_ptr<LayerCache> fork() const = 0;
};

// The ordinary one. With a window only the last tokens are kept: each sees so many before it.
class KeyValueCache : public LayerCache {
 public:
  explicit KeyValueCache(int64_t window = 0) : window_(window) {}
  at::Tensor append(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
  void store(const at::Tensor& k, const at::Tensor& v);  // without looking
  int64_t bytes() const override;
  std::unique_ptr<LayerCache> fork() const override;

 private:
  int64_t window_;
  at::Tensor k_, v_;   // [Hkv, capacity, d]: a step reads each head in one go
  int64_t count_ = 0;  // rows in use
};

// Of all layers, for one text.
class DecoderCache {
 public:
  // std::invalid_argument for hierarchies that follow the text, whose segments are known only when they are over.
  DecoderCache(const ModelConfig& config, const AttentionPlan& plan);
  DecoderCache(const DecoderCache& other);
  DecoderCache(DecoderCache&&) noexcept = default;

  LayerCache& layer(size_t l) { return *layers_[l]; }
  size_t num_layers() const { return layers_.size(); }
  int64_t tokens() const { return tokens_; }
  void add_tokens(int64_t count) { tokens_ += count; }
  int64_t bytes() const;

 private:
  std::vector<std::unique_ptr<LayerCache>> layers_;
  int64_t tokens_ = 0;
};

}  // namespace ramify::models
