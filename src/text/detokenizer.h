// Token ids back to text, as they come: what Hugging Face's `decode` makes of them, without the clean-up of spaces that
// `transformers` may add.
//
//   Detokenizer detokenizer(tokenizer);            // must not outlive the tokenizer
//   while (...) out << detokenizer.next(id);       // what this token adds to the text
//   out << detokenizer.finish();
//
//   decode(tokenizer, ids)                         // all at once: the same text
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/decoding.h"
#include "text/tokenizer.h"

namespace ramify::text {

struct DecodeOptions {
  bool with_special_tokens = false;  // </s>, [SEP] and the like are shown as they are written
};

// One text. What next() and finish() give is valid UTF-8 each: bytes that may be a part of a letter are held back until
// the letter is whole or broken, then U+FFFD. Byte pieces of SentencePiece (<0x0A>) wait for the token behind them: if
// those in a row are no valid UTF-8 together, each of them is U+FFFD.
class Detokenizer {
 public:
  // std::invalid_argument: the tokenizer.json asks for a decoder that is not supported.
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // std::invalid_argument: the tokenizer has no such token; the text stays as it was.
  std::string next(int32_t id);

  // What is held back. Then a new text may begin.
  std::string finish();

 private:
  std::string next_wordpiece(std::string_view token) const;
  std::string next_bytes(std::string_view token);
  std::string next_piece(std::string_view token);
  std::string take_byte_pieces();
  std::string without_leading_space(std::string text);

  const Tokenizer& tokenizer_;
  const Decoding& decoding_;
  DecodeOptions options_;
  bool has_tokens_ = false;  // of the text
  bool has_text_ = false;    // SentencePiece: something was given
  std::string held_;         // bytes
};

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, const DecodeOptions& options = {});

}  // namespace ramify::text
