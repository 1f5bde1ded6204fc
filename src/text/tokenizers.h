// The kinds of tokenizers behind Tokenizer, one a file. Each reads back what its to_json() gave; `name` is for
// messages.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/error.h"
#include "text/bert_words.h"
#include "text/tokenizer.h"

namespace ramify::text {

// std::invalid_argument of a vocabulary becomes an io::Error that names the file.
Vocabulary make_vocabulary(const std::vector<std::string>& tokens, int32_t unknown, const std::string& name);

struct WordPiece {
  std::vector<std::string> tokens;
  std::string unknown = "[UNK]";
  std::string prefix = "##";  // of pieces that continue a word
  size_t max_letters = 100;   // longer words are unknown
  BertRules rules;
};
std::shared_ptr<const Tokenizer> make_wordpiece(WordPiece settings, const std::string& name);
std::shared_ptr<const Tokenizer> wordpiece_from_json(const nlohmann::json& json, const std::string& name);
std::shared_ptr<const Tokenizer> load_vocab_txt(const std::string& path);
std::shared_ptr<const Tokenizer> load_tokenizer_json(const std::string& path);

std::shared_ptr<const Tokenizer> make_sentencepiece(std::string model, const std::string& name);
std::shared_ptr<const Tokenizer> sentencepiece_from_json(const nlohmann::json& json, const std::string& name);

}  // namespace ramify::text
