#include "text/bpe.h"

#include <algorithm>
#include <bit>

namespace ramify::text {
namespace {

constexpr int32_t kGone = -1;  // the id of a token that went into the one before it

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges) : slots_(std::bit_ceil(merges.size() * 2 + 1)) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    size_t place = place_of(pair);
    while (slots_[place].pair != kFree && slots_[place].pair != pair) place = (place + 1) & (slots_.size() - 1);
    slots_[place] = {pair, {static_cast<int32_t>(rank), merges[rank].result}};
  }
}

void WordMerger::add_candidate(const std::vector<Token>& tokens, size_t place) {
  const size_t next = links_[place].next;
  if (next == kNone) return;
  if (const auto* merge = merges_.find(tokens[place].id, tokens[next].id)) heap_.push_back({*merge, place});
}

// What was a candidate may have been changed by merges since.
bool WordMerger::is_stale(const std::vector<Token>& tokens, const Candidate& candidate) const {
  if (tokens[candidate.place].id == kGone || links_[candidate.place].next == kNone) return true;
  const auto* merge = merges_.find(tokens[candidate.place].id, tokens[links_[candidate.place].next].id);
  return !merge || merge->result != candidate.merge.result;
}

void WordMerger::merge(std::vector<Token>& tokens) {
  const auto comes_later = [](const Candidate& a, const Candidate& b) {
    return a.merge.rank != b.merge.rank ? a.merge.rank > b.merge.rank : a.place > b.place;
  };
  links_.resize(tokens.size());
  heap_.clear();
  for (size_t i = 0; i < tokens.size(); ++i) links_[i] = {i - 1, i + 1 < tokens.size() ? i + 1 : kNone};
  for (size_t i = 0; i < tokens.size(); ++i) add_candidate(tokens, i);
  std::make_heap(heap_.begin(), heap_.end(), comes_later);
  const auto push = [&](size_t place) {
    const size_t before = heap_.size();
    add_candidate(tokens, place);
    if (heap_.size() > before) std::push_heap(heap_.begin(), heap_.end(), comes_later);
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), comes_later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    if (is_stale(tokens, best)) continue;
    Link& link = links_[best.place];
    Token& right = tokens[link.next];
    tokens[best.place] = {best.merge.result, {tokens[best.place].source.begin, right.source.end}};
    right.id = kGone;
    link.next = links_[link.next].next;
    if (link.next != kNone) links_[link.next].previous = best.place;
    if (link.previous != kNone) push(link.previous);
    push(best.place);
  }
  std::erase_if(tokens, [](const Token& token) { return token.id == kGone; });
}

}  // namespace ramify::text
