// Byte-pair encoding of one word: of all neighbours that a merge joins those of the earliest merge become one token,
// the leftmost first, until none is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/segments.h"

namespace ramify::text {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

// The merges by the pair that they join. Immutable.
class MergeTable {
 public:
  struct Entry {
    int32_t rank;  // the place in the list; smaller ones come first
    int32_t result;
  };

  // Of a pair that comes twice the last one counts.
  explicit MergeTable(std::span<const Merge> merges);

  const Entry* find(int32_t left, int32_t right) const {  // nullptr: not there
    const uint64_t pair = pair_of(left, right);
    for (size_t place = place_of(pair); slots_[place].pair != kFree; place = (place + 1) & (slots_.size() - 1)) {
      if (slots_[place].pair == pair) return &slots_[place].entry;
    }
    return nullptr;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};  // ids are not negative
  struct Slot {
    uint64_t pair = kFree;
    Entry entry{};
  };

  static uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t place_of(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> 32 & (slots_.size() - 1); }

  std::vector<Slot> slots_;  // open addressing, a power of two
};

// The tokens of one word after the other, in time that grows with n log n. Keeps its memory from word to word.
class WordMerger {
 public:
  struct Token {
    int32_t id;
    Span source;  // of the caller's; that of a merged token reaches from the first to the last
  };

  explicit WordMerger(const MergeTable& merges) : merges_(merges) {}

  // Merges `tokens` in place.
  void merge(std::vector<Token>& tokens);

 private:
  static constexpr size_t kNone = ~size_t{0};
  struct Link {
    size_t previous;
    size_t next;
  };
  struct Candidate {  // a merge of the token at `place` with the one behind it
    MergeTable::Entry merge;
    size_t place;
  };

  void add_candidate(const std::vector<Token>& tokens, size_t place);
  bool is_stale(const std::vector<Token>& tokens, const Candidate& candidate) const;

  const MergeTable& merges_;
  std::vector<Link> links_;  // of each token; merged ones are taken out
  std::vector<Candidate> heap_;
};

}  // namespace ramify::text
