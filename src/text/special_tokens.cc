#include "text/special_tokens.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ramify::text {
namespace {

using Part = SpecialTokens::Part;
using Template = SpecialTokens::Template;

int64_t count(const Template& pieces, Part part) {
  return std::count_if(pieces.begin(), pieces.end(), [&](const auto& piece) { return piece.part == part; });
}

// Tokens of the texts that there is room for.
int64_t room_in(const Template& pieces, int64_t max_length) {
  const int64_t added = count(pieces, Part::token);
  if (max_length < added) {
    throw std::invalid_argument("special tokens: a length of " + std::to_string(max_length) +
                                " was asked for; expected at least " + std::to_string(added) +
                                ", as many as the special tokens");
  }
  return max_length - added;
}

std::span<const int32_t> cut(std::span<const int32_t> ids, int64_t length) {
  return ids.first(std::min(ids.size(), static_cast<size_t>(length)));
}

ModelInput fill(const Template& pieces, std::span<const int32_t> first, std::span<const int32_t> second) {
  ModelInput input;
  for (const auto& piece : pieces) {
    const auto ids = piece.part == Part::token ? std::span(&piece.id, 1) : piece.part == Part::first ? first : second;
    const size_t begin = input.ids.size();
    input.ids.insert(input.ids.end(), ids.begin(), ids.end());
    input.types.resize(input.ids.size(), piece.type);
    if (piece.part == Part::first) input.first = {begin, input.ids.size()};
    if (piece.part == Part::second) input.second = {begin, input.ids.size()};
  }
  return input;
}

}  // namespace

SpecialTokens::SpecialTokens(Template single, Template pair, std::optional<int32_t> padding, Bounds bounds)
    : single_(std::move(single)), pair_(std::move(pair)), padding_(padding), bounds_(std::move(bounds)) {
  if (count(single_, Part::first) != 1 || count(single_, Part::second) != 0) {
    throw std::invalid_argument("special tokens: the template of one text must have it once, and no second one");
  }
  if (count(pair_, Part::first) != 1 || count(pair_, Part::second) != 1) {
    throw std::invalid_argument("special tokens: the template of two texts must have each once");
  }
}

ModelInput SpecialTokens::wrap(std::span<const int32_t> text, int64_t max_length) const {
  return fill(single_, cut(text, room_in(single_, max_length)), {});
}

ModelInput SpecialTokens::wrap(std::span<const int32_t> first, std::span<const int32_t> second,
                               int64_t max_length) const {
  const int64_t room = room_in(pair_, max_length);
  const auto shorter = static_cast<int64_t>(std::min(first.size(), second.size()));
  const auto longer = static_cast<int64_t>(std::max(first.size(), second.size()));
  if (longer <= room - shorter) return fill(pair_, first, second);
  // The shorter one keeps what it has up to half of the room; the odd token is the longer one's, or the second one's.
  const int64_t kept = std::min(shorter, room / 2);
  const bool first_is_longer = first.size() > second.size();
  return fill(pair_, cut(first, first_is_longer ? room - kept : kept),
              cut(second, first_is_longer ? kept : room - kept));
}

}  // namespace ramify::text
