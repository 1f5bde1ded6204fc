// UTF-8 that may be broken, made whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/segments.h"

namespace ramify::text {

bool is_valid_utf8(std::string_view text);

// Each maximal part of a broken sequence becomes one U+FFFD, as browsers and Python do it.
std::string valid_utf8(std::string_view text);

// valid_utf8() of a text, and where its bytes come from.
class RepairedUtf8 {
 public:
  explicit RepairedUtf8(std::string_view broken);

  const std::string& text() const { return text_; }
  Span source(Span span) const;  // of a part of text(); what a U+FFFD stands for is not cut

 private:
  // A U+FFFD in the text, and what it stands for.
  struct Repair {
    Span mark;
    Span source;
  };
  size_t source_of(size_t place, bool is_end) const;

  std::string text_;
  std::vector<Repair> repairs_;
};

}  // namespace ramify::text
