// Vectors of texts that come from outside of this layer, say from a pretrained encoder, and become dense leaves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/segments.h"

namespace ramify::signal {

struct TextRows {
  std::vector<text::Span> spans;  // the bytes that each row stands for; their begins ascend
  std::vector<float> values;      // [spans, width]
  bool was_cut = false;           // the text has more rows than were asked for
};

// The same text always gives the same rows. Many threads may ask at once.
class TextVectors {
 public:
  virtual ~TextVectors() = default;

  virtual int64_t width() const = 0;

  // Replaces `rows`: for leaves that are tokens by one for each token of the text, at most `most`; for others by one
  // for all of the text. None for a text without tokens.
  virtual void compute(std::string_view text, int64_t most, TextRows& rows) const = 0;
};

}  // namespace ramify::signal
