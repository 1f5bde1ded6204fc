// Text to token ids: words of a built vocabulary, WordPiece, byte-level BPE, or SentencePiece. A tokenizer is
// immutable, may be used by many threads, and can be stored inside a JSON document.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/decoding.h"
#include "text/segments.h"
#include "text/vocabulary.h"

namespace ramify::text {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The words of words.h, looked up in `vocabulary`.
  static std::shared_ptr<const Tokenizer> word(Vocabulary vocabulary);

  // A file as Hugging Face publishes it, or a folder of them. io::Error names the file.
  //   *vocab.json   byte-level BPE, with the *merges.txt beside it
  //   *.json        a tokenizer.json with a WordPiece or a byte-level BPE model
  //   *.model       SentencePiece
  //   other files   vocab.txt (WordPiece; lower-casing as a tokenizer_config.json beside it says, else unless the
  //                 vocabulary has capitals)
  //   a folder      the first that is there: tokenizer.json, vocab.txt, vocab.json, tokenizer.model, another *.model;
  //                 tokenizer.model before a tokenizer.json that says the same in other words
  // Special tokens that are spelled out in a text ("[MASK]") are found there, except by SentencePiece.
  static std::shared_ptr<const Tokenizer> load(const std::string& path);

  // What to_json() gave; io::Error("NAME: ...") otherwise.
  static std::shared_ptr<const Tokenizer> from_json(const nlohmann::json& stored, const std::string& name);
  virtual nlohmann::json to_json() const = 0;

  // Appends the ids of `text` (broken UTF-8 counts as U+FFFD), and, where asked, the bytes of `text` of each.
  // Spans are of whole letters, one at least, also where a token has only some bytes of it. Where a token has the space
  // before its word (byte-level BPE, SentencePiece), its span has it, too: which sentence a token is in is told by the
  // last byte, not the first. Special tokens are not added; see model_tokenizer.h.
  void tokenize(std::string_view text, std::vector<int32_t>& ids) const;
  void tokenize(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>& spans) const;

  virtual int64_t size() const = 0;
  virtual std::string_view token(int32_t id) const = 0;    // to be shown; std::out_of_range
  virtual int32_t find(std::string_view token) const = 0;  // its id; -1: there is none
  virtual int32_t unknown() const = 0;                     // -1: there is none
  virtual bool is_special(int32_t id) const = 0;           // says something about a text: </s>, [PAD]
  virtual const Decoding& decoding() const = 0;            // see detokenizer.h

 private:
  // `text` is valid UTF-8.
  virtual void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const = 0;
};

}  // namespace ramify::text
