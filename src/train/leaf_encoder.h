// Leaves of texts from a published encoder: the vectors that the signal layer asks for (signal/text_vectors.h).
//
// Every piece of text is computed alone and by one thread, so that its vectors depend on nothing but the model and the
// piece. What does not fit into the model is taken in consecutive chunks, each with the special tokens around it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/text_model.h"
#include "signal/schema.h"
#include "signal/text_vectors.h"
#include "train/leaf_cache.h"

namespace ramify::train {

// What a schema stores of the model in `folder`. io::Error for what is no folder of an encoder.
signal::LeafEncoding describe_leaf_encoder(const std::string& folder, signal::LeafLevel level);

// io::Error if the model is not there any more, or not the one that it was.
void check_unchanged(const signal::LeafEncoding& encoding);

class LeafEncoder final : public signal::TextVectors {
 public:
  struct Options {
    at::Device device = at::kCPU;
    std::string cache;                      // a file; "": none
    int64_t max_memory = int64_t{1} << 30;  // bytes of vectors that are remembered, if there is no file
  };
  LeafEncoder(const signal::LeafEncoding& encoding, const Options& options);

  int64_t width() const override { return encoding_.width; }
  // Interrupted if a signal was caught (train/interrupt.h).
  void compute(std::string_view text, int64_t most, signal::TextRows& rows) const override;

  // When all records are read: writes the cache, and gives its memory back.
  void finish() { cache_.close(); }
  LeafCache::Counts counts() const { return cache_.counts(); }

 private:
  std::vector<float> encode(std::span<const int32_t> ids) const;

  signal::LeafEncoding encoding_;
  models::TextModel model_;
  models::AttentionPlan plan_;
  int64_t chunk_ = 0;  // tokens, without the special ones
  mutable LeafCache cache_;
};

// For records of a model that was trained before. nullptr if its texts need no encoder.
std::shared_ptr<const LeafEncoder> open_leaf_encoder(const signal::Schema& schema, at::Device device);

// The vectors of the model's tokens, [tokens, width].
at::Tensor leaf_word_table(const signal::LeafEncoding& encoding);

}  // namespace ramify::train
