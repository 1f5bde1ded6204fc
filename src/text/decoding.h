// How the tokens of a tokenizer become a text again: what the decoder of a tokenizer.json says, or what the kind of a
// tokenizer does without one. detokenizer.h follows it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ramify::text {

struct Decoding {
  enum class Rule : uint8_t {
    words,          // a space between tokens
    wordpiece,      // a space before tokens without the prefix
    byte_level,     // letters of the byte alphabet are bytes
    sentencepiece,  // U+2581 is a space
    unsupported,
  };
  enum class LeadingSpace : uint8_t { kept, one_dropped, dropped_from_first_token };

  Rule rule = Rule::words;
  std::string prefix = "##";  // of WordPiece
  bool cleanup = true;        // of WordPiece: no space before a full stop, "n't" and the like
  bool byte_pieces = true;    // of SentencePiece: <0x0A> is a byte
  LeadingSpace leading_space = LeadingSpace::one_dropped;  // of SentencePiece
  std::string unsupported;                                 // the JSON of a decoder that is not supported
};

// The "decoder" of a tokenizer.json, which is also the form that is stored. json::exception: it is something else.
Decoding decoding_from_json(const nlohmann::json& decoder);
nlohmann::json decoding_to_json(const Decoding& decoding);

// Of `stored`, a tokenizer's to_json(); older ones do not say it.
Decoding stored_decoding(const nlohmann::json& stored, const Decoding& otherwise);

}  // namespace ramify::text
