// A numbered set of tokens, and how one is built from counted words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ramify::text {

// Immutable. Looking a token up allocates nothing.
class Vocabulary {
 public:
  static constexpr std::string_view kUnknown = "<unk>";

  Vocabulary() : Vocabulary({std::string(kUnknown)}) {}
  // Ids are the places in `tokens`; one of them stands for all that are not there.
  // std::invalid_argument: a token twice, or `unknown` out of range.
  explicit Vocabulary(const std::vector<std::string>& tokens, int32_t unknown = 0);

  int64_t size() const { return static_cast<int64_t>(begin_.size()) - 1; }
  int32_t unknown() const { return unknown_; }
  int32_t id(std::string_view token) const {  // unknown() if it is not there
    const int32_t found = find(token);
    return found < 0 ? unknown_ : found;
  }
  int32_t find(std::string_view token) const;  // -1 if it is not there
  std::string_view token(int32_t id) const;    // std::out_of_range
  std::vector<std::string> tokens() const;

 private:
  struct Slot {
    uint32_t tag;  // bits of the hash that the slot's place does not tell
    int32_t id;    // -1: free
  };

  std::string_view letters_of(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return {letters_.data() + begin_[i], begin_[i + 1] - begin_[i]};
  }

  int32_t unknown_ = 0;
  std::string letters_;          // of all tokens
  std::vector<uint64_t> begin_;  // [size + 1] into letters_
  std::vector<Slot> slots_;      // open addressing, a power of two
};

struct VocabularyLimits {
  int64_t min_count = 1;
  int64_t max_size = 1 << 20;  // with the unknown token
};

// Counts words. The order in which they come does not matter.
class VocabularyBuilder {
 public:
  // Above `max_distinct` different words the rarest are forgotten, so that memory is bounded; see forgotten().
  explicit VocabularyBuilder(size_t max_distinct = size_t{1} << 23) : max_distinct_(max_distinct) {}

  void add(std::string_view word, int64_t count = 1);
  void merge(const VocabularyBuilder& other);

  size_t distinct() const { return counts_.size(); }
  int64_t count(std::string_view word) const;
  bool forgotten() const { return floor_ > 0; }  // true: some rare words were dropped on the way

  // Id 0 is Vocabulary::kUnknown; then by falling count, ties by bytes.
  Vocabulary build(const VocabularyLimits& limits = {}) const;

 private:
  struct WordHash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const;
  };

  size_t max_distinct_;
  int64_t floor_ = 0;  // counts up to here were dropped once
  std::unordered_map<std::string, int64_t, WordHash, std::equal_to<>> counts_;
};

}  // namespace ramify::text
