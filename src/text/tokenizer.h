// Text to token ids: words of a built vocabulary, WordPiece, or SentencePiece. A tokenizer is immutable, may be used by
// many threads, and can be stored inside a JSON document.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/segments.h"
#include "text/vocabulary.h"

namespace ramify::text {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The words of words.h, looked up in `vocabulary`.
  static std::shared_ptr<const Tokenizer> word(Vocabulary vocabulary);

  // vocab.txt (WordPiece; lower-casing as a tokenizer_config.json beside it says, else unless the vocabulary has
  // capitals), *.json (a tokenizer.json with a WordPiece model), *.model (SentencePiece). io::Error names the file.
  static std::shared_ptr<const Tokenizer> load(const std::string& path);

  // What to_json() gave; io::Error("NAME: ...") otherwise.
  static std::shared_ptr<const Tokenizer> from_json(const nlohmann::json& json, const std::string& name);
  virtual nlohmann::json to_json() const = 0;

  // Appends the ids of `text` (broken UTF-8 counts as U+FFFD), and, where asked, the bytes of `text` of each.
  // Special tokens are not added.
  void tokenize(std::string_view text, std::vector<int32_t>& ids) const { append(text, ids, nullptr); }
  void tokenize(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>& spans) const {
    append(text, ids, &spans);
  }

  virtual int64_t size() const = 0;
  virtual std::string_view token(int32_t id) const = 0;  // to be shown; std::out_of_range
  virtual int32_t unknown() const = 0;

 private:
  virtual void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const = 0;
};

}  // namespace ramify::text
