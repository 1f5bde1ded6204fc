// The texts of a published model: its folder is opened once, and texts become what the model was trained on, token ids
// with its special tokens around them, cut to the length it can take. As `transformers` does it with truncation=True.
//
//   const auto tokenizer = ModelTokenizer::load("models/gte-small");
//   const auto input = tokenizer.encode("Hello there.", {.max_length = 512});
//   input.ids                     [CLS] hello there . [SEP]
//   const auto pair = tokenizer.encode_pair(question, answer, {.max_length = 512});
//   pair.ids, pair.types          [CLS] question [SEP] answer [SEP], 0 up to the first [SEP], then 1
//
// Where tokens come from, to lay the sentences of a text over them:
//
//   const auto input = tokenizer.encode(text, {.max_length = 512, .with_spans = true});
//   for (size_t i = input.first.begin; i < input.first.end; ++i) input.spans[i].of(text);    // see Tokenizer::tokenize
//
// And back, at once or as the tokens come:
//
//   tokenizer.decode(input.ids)                   hello there.
//   Detokenizer(tokenizer.tokenizer())            see detokenizer.h
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace ramify::text {

struct EncodeOptions {
  int64_t max_length = SpecialTokens::kNoLimit;  // of the ids, special tokens included
  bool with_spans = false;                       // fills ModelInput::spans
};

// Immutable; may be used by many threads; cheap to copy.
class ModelTokenizer {
 public:
  // What Tokenizer::load and SpecialTokens::load find in a folder. io::Error names the file that is wrong.
  static ModelTokenizer load(const std::string& folder);

  ModelTokenizer(std::shared_ptr<const Tokenizer> tokenizer, SpecialTokens special_tokens);

  // Broken UTF-8 counts as U+FFFD. std::invalid_argument: not even the special tokens fit into max_length.
  ModelInput encode(std::string_view text, const EncodeOptions& options = {}) const;
  ModelInput encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const;

  // std::invalid_argument: an id that is no token, or a decoder that is not supported.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const SpecialTokens& special_tokens() const { return special_tokens_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  SpecialTokens special_tokens_;
};

}  // namespace ramify::text
