#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace ramify::text {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Eight bytes a step. Not proof against chosen collisions: a table's words come from its own builder.
uint64_t hash(std::string_view token) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t state = token.size() * kOdd;
  const char* at = token.data();
  size_t left = token.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t bytes;
    std::memcpy(&bytes, at, 8);
    state = mix(state ^ bytes, kOdd);
  }
  uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, at, left);
  return mix(state ^ rest, 0xD6E8FEB86659FD93u);
}

}  // namespace

Vocabulary::Vocabulary(const std::vector<std::string>& tokens, int32_t unknown) : unknown_(unknown) {
  if (tokens.size() >= size_t{1} << 31 || unknown < 0 || static_cast<size_t>(unknown) >= tokens.size()) {
    throw std::invalid_argument("vocabulary: the unknown token is number " + std::to_string(unknown) + " of " +
                                std::to_string(tokens.size()) + "; expected one of them");
  }
  slots_.assign(std::bit_ceil(tokens.size() * 2), {0, -1});
  begin_.reserve(tokens.size() + 1);
  begin_.push_back(0);
  for (const std::string& token : tokens) {
    if (find(token) >= 0) throw std::invalid_argument("vocabulary: the token \"" + token + "\" comes twice");
    const auto id = static_cast<int32_t>(begin_.size() - 1);
    letters_ += token;
    begin_.push_back(letters_.size());
    const uint64_t h = hash(token);
    size_t place = h & (slots_.size() - 1);
    while (slots_[place].id >= 0) place = (place + 1) & (slots_.size() - 1);
    slots_[place] = {static_cast<uint32_t>(h >> 32), id};
  }
}

int32_t Vocabulary::find(std::string_view token) const {
  const uint64_t h = hash(token);
  const auto tag = static_cast<uint32_t>(h >> 32);
  for (size_t place = h & (slots_.size() - 1); slots_[place].id >= 0; place = (place + 1) & (slots_.size() - 1)) {
    if (slots_[place].tag == tag && letters_of(slots_[place].id) == token) return slots_[place].id;
  }
  return -1;
}

std::string_view Vocabulary::token(int32_t id) const {
  if (id < 0 || id >= size()) {
    throw std::out_of_range("vocabulary: no token " + std::to_string(id) + " of " + std::to_string(size()));
  }
  return letters_of(id);
}

std::vector<std::string> Vocabulary::tokens() const {
  std::vector<std::string> all;
  for (int32_t id = 0; id < size(); ++id) all.emplace_back(token(id));
  return all;
}

size_t VocabularyBuilder::WordHash::operator()(std::string_view word) const {
  return hash(word);
}

void VocabularyBuilder::add(std::string_view word, int64_t count) {
  const auto found = counts_.find(word);
  if (found != counts_.end()) {
    found->second += count;
    return;
  }
  counts_.emplace(word, count);
  while (counts_.size() > max_distinct_) {
    ++floor_;
    std::erase_if(counts_, [&](const auto& entry) { return entry.second <= floor_; });
  }
}

void VocabularyBuilder::merge(const VocabularyBuilder& other) {
  for (const auto& [word, count] : other.counts_) add(word, count);
  floor_ = std::max(floor_, other.floor_);
}

int64_t VocabularyBuilder::count(std::string_view word) const {
  const auto found = counts_.find(word);
  return found == counts_.end() ? 0 : found->second;
}

Vocabulary VocabularyBuilder::build(const VocabularyLimits& limits) const {
  std::vector<std::pair<int64_t, std::string_view>> kept;
  for (const auto& [word, count] : counts_) {
    if (count >= limits.min_count && word != Vocabulary::kUnknown) kept.emplace_back(-count, word);
  }
  std::sort(kept.begin(), kept.end());
  const auto most = static_cast<size_t>(std::max<int64_t>(limits.max_size - 1, 0));
  if (kept.size() > most) kept.resize(most);
  std::vector<std::string> tokens = {std::string(Vocabulary::kUnknown)};
  for (const auto& [count, word] : kept) tokens.emplace_back(word);
  return Vocabulary(tokens);
}

}  // namespace ramify::text
