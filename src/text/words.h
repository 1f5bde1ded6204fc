// Words for built vocabularies and word vectors: lower-cased, split as the Penn Treebank (and GloVe) has them.
// "Don't pay $3.50, U.K.!" gives  do n't pay $ 3.50 , u.k. !
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/segments.h"

namespace ramify::text {

// The words of one text. Reused from text to text, it allocates nothing.
class Words {
 public:
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(letters_).substr(begin, ends_[i] - begin);
  }
  Span source(size_t i) const { return sources_[i]; }  // in the text that was split

  // Replaces the words by those of `text` (valid UTF-8).
  void split(std::string_view text);

 private:
  friend class WordSplitter;

  std::string letters_;       // of all the words, lower-cased
  std::vector<size_t> ends_;  // of each word, in letters_
  std::vector<Span> sources_;
};

std::vector<std::string> words(std::string_view text);

}  // namespace ramify::text
