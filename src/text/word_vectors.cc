#include "text/word_vectors.h"

#include <charconv>
#include <cmath>
#include <unordered_set>

#include "io/lines.h"

namespace ramify::text {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 20;
constexpr int64_t kMaxWidth = 1 << 16;

std::string_view trim_end(std::string_view line) {
  while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
  return line;
}

// Takes the last field from the line; empty when nothing is left. Words may hold spaces, numbers do not.
std::string_view pop_field(std::string_view& line) {
  const size_t gap = line.find_last_of(" \t");
  const std::string_view field = gap == line.npos ? line : line.substr(gap + 1);
  line = trim_end(gap == line.npos ? std::string_view() : line.substr(0, gap));
  return field;
}

template <class Number>  // int64_t or double: numbers that underflow in float are still numbers
bool parse(std::string_view field, Number& value) {
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  return error == std::errc() && end == field.data() + field.size();
}

// "count width", the first line of word2vec's format.
bool is_header(std::string_view line, int64_t& width) {
  std::string_view rest = line;
  const std::string_view last = pop_field(rest);
  int64_t count = 0;
  return !rest.empty() && rest.find_first_of(" \t") == rest.npos && parse(last, width) && parse(rest, count);
}

class VectorReader {
 public:
  explicit VectorReader(const std::string& path) : lines_(path, kMaxLineBytes) {}

  WordVectors read(const std::function<bool(std::string_view)>& keep) {
    WordVectors vectors;
    std::unordered_set<std::string> seen;
    std::string line;
    while (lines_.next(line)) {
      const std::string_view text = trim_end(line);
      if (lines_.number() == 1 && is_header(text, vectors.width)) {
        check_width(vectors.width);
        continue;
      }
      if (vectors.width == 0) check_width(vectors.width = count_fields(text) - 1);
      const std::string_view word = parse_line(text, vectors.width);
      if ((keep && !keep(word)) || !seen.emplace(word).second) continue;
      vectors.words.emplace_back(word);
      vectors.values.insert(vectors.values.end(), row_.begin(), row_.end());
    }
    if (vectors.words.empty() && lines_.number() == 0)
      throw io::Error(lines_.name() + ": is empty; expected word vectors");
    return vectors;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw io::Error(lines_.name() + ":" + std::to_string(lines_.number()) + ": " + what);
  }

  void check_width(int64_t width) const {
    if (width < 1 || width > kMaxWidth) {
      fail("vectors of " + std::to_string(width) + " numbers; expected \"word v1 ... vd\" with d from 1 to " +
           std::to_string(kMaxWidth));
    }
  }

  static int64_t count_fields(std::string_view line) {
    int64_t fields = 0;
    for (; !line.empty(); pop_field(line)) ++fields;
    return fields;
  }

  // A word may hold spaces, but one that ends in a number is a line with more numbers than the others.
  void check_word(std::string_view word, int64_t width) const {
    std::string_view rest = word;
    double value;
    const bool too_many = parse(pop_field(rest), value) && !rest.empty();
    if (word.empty() || too_many) {
      fail((too_many ? "more" : "fewer") + std::string(" numbers than in the lines before; expected a word and ") +
           std::to_string(width) + " of them");
    }
  }

  // The word of the line; its numbers go to row_.
  std::string_view parse_line(std::string_view line, int64_t width) {
    row_.resize(static_cast<size_t>(width));
    for (size_t i = row_.size(); i-- > 0;) {
      const std::string_view field = pop_field(line);
      double value = 0;
      const bool is_number = parse(field, value);
      row_[i] = static_cast<float>(value);
      if (!is_number || !std::isfinite(row_[i])) {
        fail(io::printable(field) + " in place of a number; expected a word and " + std::to_string(width) +
             " finite numbers");
      }
    }
    check_word(line, width);
    return line;
  }

  io::LineReader lines_;
  std::vector<float> row_;
};

}  // namespace

WordVectors read_word_vectors(const std::string& path, const std::function<bool(std::string_view)>& keep) {
  return VectorReader(path).read(keep);
}

}  // namespace ramify::text
