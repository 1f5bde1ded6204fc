// A published model with its tokenizer: texts in, a vector for each token or each text out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/attention_plan.h"
#include "models/decoder.h"
#include "models/encoder.h"
#include "models/packed_texts.h"
#include "text/model_tokenizer.h"

namespace ramify::models {

// Texts to tokens, as the folder of a published model says.
class TextTokenizer {
 public:
  explicit TextTokenizer(const std::string& folder);

  // At most `max_tokens`, special ones included; what is too much is cut from the end. Segments of the text are looked
  // for where `with_segments`. Broken UTF-8 counts as U+FFFD.
  TokenizedText tokenize(std::string_view text, int64_t max_tokens, bool with_segments) const;
  TokenizedText tokenize(std::string_view first, std::string_view second, int64_t max_tokens) const;

  const text::Tokenizer& tokenizer() const { return tokens_.tokenizer(); }
  const text::SpecialTokens& special() const { return tokens_.special_tokens(); }

 private:
  text::ModelTokenizer tokens_;
};

enum class Pooling {
  mean,  // of all tokens, special ones included
  cls,   // the first token
};

class TextModel {
 public:
  struct Options {
    at::Device device = at::kCPU;
    at::ScalarType dtype = at::kFloat;  // in which it computes
  };
  // An encoder or a decoder. io::Error for a folder that is neither.
  TextModel(const std::string& folder, const Options& options);

  const ModelConfig& config() const { return config_; }
  const TextTokenizer& tokenizer() const { return tokenizer_; }
  int64_t num_layers() const { return config().layers; }

  Decoder& decoder() const { return *decoder_; }                           // of a decoder
  const at::Tensor& word_table() const { return encoder_->word_table(); }  // [vocabulary, width]

  PackedTexts pack(std::span<const TokenizedText* const> texts) const;
  // [T, width], without gradients.
  at::Tensor token_rows(const PackedTexts& texts, const AttentionPlan& plan, Trace* trace = nullptr) const;
  // [texts, width] float32, on the CPU.
  static at::Tensor pooled(const at::Tensor& rows, const PackedTexts& texts, Pooling pooling);

 private:
  TextTokenizer tokenizer_;
  ModelConfig config_;
  std::shared_ptr<Encoder> encoder_;  // one of them
  std::shared_ptr<Decoder> decoder_;
  at::Device device_;
};

// Texts of similar length together, as a batch of few lengths wastes nothing: numbers of texts, each once, batches of
// at most `max_tokens` in all (or one text).
std::vector<std::vector<size_t>> batches_by_length(std::span<const TokenizedText> texts, int64_t max_tokens);

}  // namespace ramify::models
