// The tree over the tokens of a text: windows of tokens, and the text's own sentences and paragraphs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ramify/forest.h"

namespace ramify::models {

// A text as far as a tree over its tokens needs to know it. Segments are where they begin, as numbers of tokens; the
// first one begins at 0. Special tokens are tokens like others: one in front belongs to the first segment, one behind
// to the last.
struct TextStructure {
  int64_t tokens = 0;
  std::vector<int64_t> sentences, paragraphs;
};

// Levels from the bottom up: `2,4,8,16` and `16*` are windows as Branching has them; `sentences` and `paragraphs` are
// the text's own. Windows never cross a segment of the next such level above them: `8,sentences,4,paragraphs` is
// windows of 8 tokens inside sentences, and windows of 4 sentences inside paragraphs. Without more to say, what is left
// is one family; `alone` behind the last level makes each node a tree of its own, which sees nothing else: `32,alone`.
struct TextHierarchy {
  enum class Kind { window, sentences, paragraphs, alone };
  struct Level {
    Kind kind = Kind::window;
    int64_t size = 0;     // of windows
    bool repeat = false;  // windows of windows, until one is left in each segment
    bool operator==(const Level&) const = default;
  };
  std::vector<Level> levels;

  // std::invalid_argument with what was expected.
  static TextHierarchy parse(std::string_view text);
  std::string text() const;   // as parse() reads it
  bool follows_text() const;  // has sentences or paragraphs
  bool stands_alone() const;  // each node of the last level is a tree

  Forest build(std::span<const TextStructure> texts) const;
  bool operator==(const TextHierarchy&) const = default;
};

}  // namespace ramify::models
