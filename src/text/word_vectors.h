// Word vectors in the ordinary text format: a line a word, "word v1 ... vd", as GloVe, word2vec and fastText write them
// (the latter two begin with a line "count width"). Plain or zstd-compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace ramify::text {

struct WordVectors {
  int64_t width = 0;
  std::vector<std::string> words;
  std::vector<float> values;  // [words, width]

  std::span<const float> vector(size_t word) const {
    return std::span(values).subspan(word * static_cast<size_t>(width), static_cast<size_t>(width));
  }
};

// Only the words that `keep` accepts (all, if it is empty); of a word that comes twice, the first vector.
// io::Error("FILE:LINE: ...") for a line of another width, or of what is no finite number.
WordVectors read_word_vectors(const std::string& path, const std::function<bool(std::string_view)>& keep = {});

}  // namespace ramify::text
