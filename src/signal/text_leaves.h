// A string as paragraphs, sentences and tokens. What a leaf is can be a token's id, or a vector that someone else
// computes of a token, a sentence or a paragraph; what would be below such a leaf is not in the tree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "signal/compiler.h"
#include "signal/schema.h"
#include "signal/signal_builder.h"
#include "signal/text_vectors.h"
#include "text/segments.h"
#include "text/tokenizer.h"

namespace ramify::signal {

// Keeps its memory from text to text.
class TextLeaves {
 public:
  // What leaves are made by: one of the first two is there.
  struct Source {
    const text::Tokenizer* tokenizer = nullptr;
    const TextVectors* vectors = nullptr;
    LeafLevel level = LeafLevel::token;
    uint8_t modality = 0;
  };
  void reset(const Source& source, Labels labels, SignalBuilder& builder);

  // Adds the levels to the family that is open. Parts without a token are left out, so there may be none at all.
  void add(std::string_view text, const std::vector<TextLevel>& levels);

 private:
  // A level between the text and its leaves. Its node is opened when the first leaf below comes.
  struct Level {
    bool is_used = false;
    bool is_open = false;
    int32_t place = 0;
  };
  // The lowest level above tokens that is used, where the whole text is tokenised at once.
  struct Part {
    size_t begin = 0;  // in the text
    bool ends_paragraph = false;
  };

  void add_sentences(std::string_view paragraph);
  void add_tokens(std::string_view sentence);
  void add_vector(std::string_view piece, int32_t& place);
  void add_token_vectors(std::string_view text);
  void find_parts(std::string_view text);
  void add_rows(std::string_view text, size_t first, size_t last);
  std::string_view cut_to_room(std::string_view text);
  void open(Level& level, std::string_view kind);
  void close(Level& level);

  Source source_;
  bool with_labels_ = false;
  SignalBuilder* builder_ = nullptr;
  Level paragraph_, sentence_;
  std::vector<text::Span> paragraphs_, sentences_, sources_;
  std::vector<Part> parts_;
  std::vector<int32_t> ids_;
  TextRows rows_;
};

}  // namespace ramify::signal
