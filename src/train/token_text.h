// Running text as token ids, and sequences cut from it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/packed_texts.h"
#include "signal/shares.h"
#include "text/tokenizer.h"

namespace ramify::train {

struct TokenReading {
  std::string field = "text";                                     // of the records in .jsonl files
  int64_t limit = 0;                                              // tokens that are taken; 0: all
  int workers = 1;                                                // threads that tokenise; the ids are the same
  std::function<void(double share, int64_t tokens)> on_progress;  // share of the files; -1: not known. May throw
  signal::Member member;  // of several that tokenise a part each, and get the parts of the others
};

// The texts of files, one behind the other: plain ones as they are, records (.jsonl, .jsonl.zst) by a field, each with
// a newline behind it. Broken UTF-8 counts as U+FFFD. io::Error names a file that cannot be read or has no text.
std::vector<int32_t> read_tokens(const std::vector<std::string>& files, const text::Tokenizer& tokenizer,
                                 const TokenReading& options);

// A text cut into sequences of `context` tokens: special tokens in front of each, then the next tokens of the text,
// each once. The last sequence may be shorter; of fewer than two tokens there is none, as nothing in it could be
// foretold.
class Sequences {
 public:
  // std::invalid_argument unless `before` leaves room for a token.
  Sequences(std::vector<int32_t> text, std::vector<int32_t> before, int64_t context);

  int64_t size() const { return size_; }
  int64_t length(int64_t sequence) const;
  int64_t num_tokens() const { return static_cast<int64_t>(text_.size()); }  // of the text

  // Some of them as a batch. `max_tokens`: positions of the model.
  models::PackedTexts pack(std::span<const int64_t> sequences, int64_t max_tokens, at::Device device) const;

 private:
  int64_t of_text(int64_t sequence) const;  // tokens of the text in it

  std::vector<int32_t> text_, before_;
  int64_t room_;  // for the text in a sequence
  int64_t size_;
};

}  // namespace ramify::train
