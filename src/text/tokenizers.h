// The kinds of tokenizers behind Tokenizer, one a file. Each reads back what its to_json() gave; `name` is for
// messages.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/error.h"
#include "text/added_tokens.h"
#include "text/bert_words.h"
#include "text/bpe.h"
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
  Decoding decoding{.rule = Decoding::Rule::wordpiece};
};
std::shared_ptr<const Tokenizer> make_wordpiece(WordPiece settings, const std::string& name);
std::shared_ptr<const Tokenizer> wordpiece_from_json(const nlohmann::json& stored, const std::string& name);
std::shared_ptr<const Tokenizer> load_vocab_txt(const std::string& path);
std::shared_ptr<const Tokenizer> wordpiece_from_tokenizer_json(const nlohmann::json& file, const std::string& path);

struct ByteLevelBpe {
  std::vector<std::string> tokens;     // in the byte alphabet
  std::vector<Merge> merges;           // the earliest first
  std::optional<std::string> unknown;  // for bytes that are no token; without one they are left out
  bool fuse_unknown = false;           // one for all such bytes in a row
  bool prefix_space = false;           // a text that begins without a space gets one
  bool split_words = true;             // by byte_level_word_end; false: merges cross words
  bool whole_words = false;            // a word that is a token is that token, whatever the merges make of it
  Decoding decoding{.rule = Decoding::Rule::byte_level};
};
std::shared_ptr<const Tokenizer> make_byte_level_bpe(ByteLevelBpe settings, const std::string& name);
std::shared_ptr<const Tokenizer> byte_level_bpe_from_json(const nlohmann::json& stored, const std::string& name);
std::shared_ptr<const Tokenizer> load_vocab_json(const std::string& path);  // with the merges.txt beside it
std::shared_ptr<const Tokenizer> byte_level_bpe_from_tokenizer_json(const nlohmann::json& file,
                                                                    const std::string& path);

// Without a decoding that of Llama, which drops the space that the model puts before a text.
std::shared_ptr<const Tokenizer> make_sentencepiece(std::string model, const std::string& name,
                                                    std::optional<Decoding> decoding = std::nullopt);
std::shared_ptr<const Tokenizer> sentencepiece_from_json(const nlohmann::json& stored, const std::string& name);

// `base`, with `tokens` looked for first; `base` itself if there are none. Ids that `base` has must be those of the
// same tokens, others must follow its own: io::Error("NAME: ...").
std::shared_ptr<const Tokenizer> with_added_tokens(std::shared_ptr<const Tokenizer> base,
                                                   std::vector<AddedToken> tokens, const std::string& name);

inline constexpr size_t kMaxModelBytes = size_t{256} << 20;  // of a SentencePiece model

// `file` is the content of `path`, a tokenizer.json.
std::shared_ptr<const Tokenizer> tokenizer_from_tokenizer_json(const nlohmann::json& file, const std::string& path);
bool is_sentencepiece_in_json(const nlohmann::json& file);  // true: it says what a SentencePiece model says
Decoding decoder_of_tokenizer_json(const nlohmann::json& file, const std::string& path);
std::shared_ptr<const Tokenizer> load_tokenizer_folder(const std::string& folder);

}  // namespace ramify::text
