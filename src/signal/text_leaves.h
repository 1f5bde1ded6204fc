// A string as paragraphs, sentences and tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "signal/compiler.h"
#include "signal/schema.h"
#include "signal/signal_builder.h"
#include "text/segments.h"
#include "text/tokenizer.h"

namespace ramify::signal {

// Keeps its memory from text to text.
class TextLeaves {
 public:
  void reset(const text::Tokenizer& tokenizer, uint8_t modality, Labels labels, SignalBuilder& builder);

  // Adds the levels to the family that is open. Parts without a token are left out, so there may be none at all.
  void add(std::string_view text, const std::vector<TextLevel>& levels);

 private:
  // A level between the text and its tokens. Its node is opened when the first token below comes.
  struct Level {
    bool is_used = false;
    bool is_open = false;
    int32_t place = 0;
  };

  void add_sentences(std::string_view paragraph);
  void add_tokens(std::string_view sentence);
  void open(Level& level, std::string_view kind);
  void close(Level& level);

  const text::Tokenizer* tokenizer_ = nullptr;
  uint8_t modality_ = 0;
  bool with_labels_ = false;
  SignalBuilder* builder_ = nullptr;
  Level paragraph_, sentence_;
  std::vector<text::Span> paragraphs_, sentences_, sources_;
  std::vector<int32_t> ids_;
};

}  // namespace ramify::signal
