#include "models/layer_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <stdexcept>

#include "ramify/cache.h"

namespace ramify::models {
namespace {

class HierarchicalLayer : public LayerCache {
 public:
  explicit HierarchicalLayer(const CacheOptions& options) : cache_(options) {}
  at::Tensor append(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override {
    const auto batched = [](const at::Tensor& rows) { return rows.to(at::kCPU).unsqueeze(0); };
    return cache_.append(batched(q), batched(k), batched(v)).squeeze(0).to(v.device());
  }
  int64_t bytes() const override { return cache_.bytes(); }
  std::unique_ptr<LayerCache> fork() const override { return std::make_unique<HierarchicalLayer>(*this); }

 private:
  HierarchicalCache cache_;
};

std::unique_ptr<LayerCache> make_layer(const ModelConfig& config, const std::optional<HierarchicalAttention>& choice) {
  if (!choice) return std::make_unique<KeyValueCache>();
  if (choice->hierarchy.levels.empty()) return std::make_unique<KeyValueCache>(choice->window);
  if (choice->hierarchy.follows_text()) {
    throw std::invalid_argument(
        "hierarchy " + choice->hierarchy.text() +
        ": the end of a sentence is known when it is over; generation takes windows, such as 16*");
  }
  return std::make_unique<HierarchicalLayer>(CacheOptions{.heads = config.heads,
                                                          .key_heads = config.kv_heads,
                                                          .dim = config.head_dim,
                                                          .value_dim = config.head_dim,
                                                          .hierarchy = choice->hierarchy.text(),
                                                          .tie = choice->tie,
                                                          .window = choice->window});
}

}  // namespace

void KeyValueCache::store(const at::Tensor& k, const at::Tensor& v) {
  const int64_t n = k.size(0);
  if (window_ > 0 && count_ > 2 * (window_ + 1)) {  // what no token will see again
    for (at::Tensor* rows : {&k_, &v_}) *rows = rows->narrow(1, count_ - window_, window_).clone();
    count_ = window_;
  }
  const int64_t capacity = k_.defined() ? k_.size(1) : 0;
  if (count_ + n > capacity) {
    const int64_t larger = std::max(count_ + n, 2 * capacity);
    const auto grown = [&](const at::Tensor& rows, const at::Tensor& like) {
      at::Tensor all = at::empty({like.size(1), larger, like.size(2)}, like.options());
      if (count_ > 0) all.narrow(1, 0, count_).copy_(rows.narrow(1, 0, count_));
      return all;
    };
    k_ = grown(k_, k), v_ = grown(v_, v);
  }
  k_.narrow(1, count_, n).copy_(k.transpose(0, 1));
  v_.narrow(1, count_, n).copy_(v.transpose(0, 1));
  count_ += n;
}

at::Tensor KeyValueCache::append(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  store(k, v);
  const int64_t n = q.size(0), before = count_ - n;
  const int64_t first = window_ == 0 ? 0 : std::max<int64_t>(0, before - window_);
  const auto seen = [&](const at::Tensor& rows) { return rows.narrow(1, first, count_ - first).unsqueeze(0); };
  const bool is_causal = n > 1 && before == 0 && window_ == 0;
  std::optional<at::Tensor> mask;
  if (n > 1 && !is_causal) {
    const auto numbers = at::TensorOptions(at::kLong).device(q.device());
    const at::Tensor own = at::arange(before, count_, numbers).unsqueeze(1), other = at::arange(first, count_, numbers);
    mask = other <= own;
    if (window_ > 0) mask = *mask & (other >= own - window_);
  }
  const bool grouped = q.size(1) != k.size(1);
  const at::Tensor out = at::scaled_dot_product_attention(q.transpose(0, 1).unsqueeze(0), seen(k_), seen(v_), mask, 0.0,
                                                          is_causal, std::nullopt, grouped);
  return out.squeeze(0).transpose(0, 1);
}

int64_t KeyValueCache::bytes() const {
  return k_.defined() ? count_ * (k_.size(0) * k_.size(2) + v_.size(0) * v_.size(2)) * k_.element_size() : 0;
}

std::unique_ptr<LayerCache> KeyValueCache::fork() const {
  auto copy = std::make_unique<KeyValueCache>(*this);
  if (k_.defined()) copy->k_ = k_.clone(), copy->v_ = v_.clone();
  return copy;
}

DecoderCache::DecoderCache(const ModelConfig& config, const AttentionPlan& plan) {
  for (const auto& choice : plan.layers) layers_.push_back(make_layer(config, choice));
}

DecoderCache::DecoderCache(const DecoderCache& other) : tokens_(other.tokens_) {
  for (const auto& layer : other.layers_) layers_.push_back(layer->fork());
}

int64_t DecoderCache::bytes() const {
  int64_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer->bytes();
  return bytes;
}

}  // namespace ramify::models
