// Tokens that are found in a text before it is split: [MASK], <|endoftext|>, and those that users have added to a
// published tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/segments.h"
#include "text/vocabulary.h"

namespace ramify::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool strips_left = false;  // takes the white space before it along
  bool strips_right = false;
  bool single_word = false;  // only where no letter, digit or the like stands right before or behind it
  bool normalized = false;   // looked for in what the others leave, in its normalised form
  bool special = true;       // says something about a text; decoding leaves it out unless asked
};

// Finds tokens in a text, leftmost and longest first. Immutable.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  struct Match {
    const AddedToken* token = nullptr;  // none: the text has no more
    Span found;                         // the token itself
    Span taken;                         // with the white space that it strips
  };
  // The first one from `begin` on; white space before `taken_to` belongs to an earlier one.
  Match next(std::string_view text, size_t begin, size_t taken_to) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  Vocabulary contents_;                             // number 0 is none of them
  std::array<std::vector<size_t>, 256> lengths_{};  // of those that begin with a byte, the longest first
};

// io::Error("NAME: ...") if one is to be looked for in a normalised text, which WordPiece here never has as a whole.
void check_not_normalized(const std::vector<AddedToken>& tokens, const std::string& name);

// The list of a tokenizer.json, which is also the form that is stored. json::exception: it is something else.
std::vector<AddedToken> added_tokens_from_json(const nlohmann::json& list);
nlohmann::json added_tokens_to_json(const std::vector<AddedToken>& tokens);

}  // namespace ramify::text
