#include "text/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/error.h"
#include "text/json_files.h"
#include "text/letters.h"

namespace ramify::text {
namespace {

// \w of regular expressions over Unicode (UTS 18).
bool is_word_letter(UChar32 c) {
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool stands_alone(std::string_view text, Span found) {
  size_t before = found.begin;
  size_t behind = found.end;
  return (before == 0 || !is_word_letter(previous_letter(text, before))) &&
         (behind == text.size() || !is_word_letter(next_letter(text, behind)));
}

size_t skip_space_before(std::string_view text, size_t at, size_t not_before) {
  for (size_t begin = at; at > not_before; at = begin) {
    if (!u_isUWhiteSpace(previous_letter(text, begin))) break;
  }
  return at;
}

size_t skip_space_behind(std::string_view text, size_t at) {
  for (size_t end = at; at < text.size(); at = end) {
    if (!u_isUWhiteSpace(next_letter(text, end))) break;
  }
  return at;
}

std::vector<std::string> contents_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::string> contents = {""};  // never looked up; a vocabulary has one token at least
  for (const AddedToken& token : tokens) contents.push_back(token.content);
  return contents;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), contents_(contents_of(tokens_)) {
  for (const AddedToken& token : tokens_) {
    lengths_[static_cast<unsigned char>(token.content[0])].push_back(token.content.size());
  }
  for (auto& lengths : lengths_) {
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  }
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  for (const size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
    if (length > text.size() - at) continue;
    if (const int32_t found = contents_.find(text.substr(at, length)); found > 0) {
      return &tokens_[static_cast<size_t>(found) - 1];
    }
  }
  return nullptr;
}

AddedTokenFinder::Match AddedTokenFinder::next(std::string_view text, size_t begin, size_t taken_to) const {
  if (tokens_.empty()) return {};
  while (begin < text.size()) {
    const AddedToken* token = longest_at(text, begin);
    if (!token) {
      ++begin;
      continue;
    }
    const Span found{begin, begin + token->content.size()};
    begin = found.end;
    if (token->single_word && !stands_alone(text, found)) continue;
    Span taken = found;
    if (token->strips_left) taken.begin = skip_space_before(text, found.begin, std::min(taken_to, found.begin));
    if (token->strips_right) taken.end = skip_space_behind(text, found.end);
    return {token, found, taken};
  }
  return {};
}

void check_not_normalized(const std::vector<AddedToken>& tokens, const std::string& name) {
  const auto found = std::find_if(tokens.begin(), tokens.end(), [](const auto& token) { return token.normalized; });
  if (found == tokens.end()) return;
  throw io::Error(name + ": the added token " + io::printable(found->content) +
                  " is one of the normalised text; expected \"normalized\": false");
}

std::vector<AddedToken> added_tokens_from_json(const nlohmann::json& list) {
  std::vector<AddedToken> tokens;
  for (const auto& entry : list.get_ref<const nlohmann::json::array_t&>()) {
    AddedToken token;
    token.content = entry.at("content").get<std::string>();
    token.id = json_id(entry.at("id"));
    token.strips_left = json_flag(entry, "lstrip", false);
    token.strips_right = json_flag(entry, "rstrip", false);
    token.single_word = json_flag(entry, "single_word", false);
    token.normalized = json_flag(entry, "normalized", !json_flag(entry, "special", false));
    // stored ones once had no "special"
    token.special = json_flag(entry, "special", entry.contains("normalized") && !token.normalized);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

nlohmann::json added_tokens_to_json(const std::vector<AddedToken>& tokens) {
  auto list = nlohmann::json::array();
  for (const AddedToken& token : tokens) {
    list.push_back({{"content", token.content},
                    {"id", token.id},
                    {"lstrip", token.strips_left},
                    {"rstrip", token.strips_right},
                    {"single_word", token.single_word},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

}  // namespace ramify::text
