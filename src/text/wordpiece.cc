// WordPiece: each word of BERT's rules is cut greedily into the longest pieces that the vocabulary has.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/tokenizers.h"
#include "text/utf8.h"

namespace ramify::text {
namespace {

class WordPieceTokenizer : public Tokenizer {
 public:
  WordPieceTokenizer(WordPiece settings, Vocabulary vocabulary)
      : settings_(std::move(settings)), vocabulary_(std::move(vocabulary)) {
    std::vector<std::string> rest = {""};  // never looked up; a vocabulary has one token at least
    continuation_ids_ = {unknown()};
    for (int32_t id = 0; id < size(); ++id) {
      const std::string_view token = vocabulary_.token(id);
      longest_ = std::max(longest_, token.size());
      if (!token.starts_with(settings_.prefix) || token.size() == settings_.prefix.size()) continue;
      rest.emplace_back(token.substr(settings_.prefix.size()));
      continuation_ids_.push_back(id);
    }
    continuations_ = Vocabulary(rest);
    settings_.tokens.clear();  // vocabulary_ has them
  }

  int64_t size() const override { return vocabulary_.size(); }
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  int32_t find(std::string_view token) const override { return vocabulary_.find(token); }
  int32_t unknown() const override { return vocabulary_.unknown(); }
  bool is_special(int32_t) const override { return false; }
  const Decoding& decoding() const override { return settings_.decoding; }

  nlohmann::json to_json() const override {
    const BertRules& rules = settings_.rules;
    return {{"type", "wordpiece"},
            {"tokens", vocabulary_.tokens()},
            {"unknown", settings_.unknown},
            {"prefix", settings_.prefix},
            {"max_letters", settings_.max_letters},
            {"lowercase", rules.lowercase},
            {"strip_accents", rules.strip_accents},
            {"clean_text", rules.clean_text},
            {"split_chinese", rules.split_chinese},
            {"decoder", decoding_to_json(settings_.decoding)}};
  }

 private:
  void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const override {
    BertWords words(text, settings_.rules, settings_.max_letters);
    while (words.next()) append_word(words, ids, spans);
  }

  void append_word(const BertWords& words, std::vector<int32_t>& ids, std::vector<Span>* spans) const {
    const std::string_view word = words.word();
    const size_t first = ids.size();
    size_t begin = 0;
    while (begin < word.size() && !words.overlong()) {
      const auto [id, end] = longest_piece(word, begin);
      if (id < 0) break;
      ids.push_back(id);
      if (spans) spans->push_back(words.source(begin, end));
      begin = end;
    }
    if (begin == word.size() && !words.overlong()) return;
    if (spans) {
      spans->resize(spans->size() - (ids.size() - first));
      spans->push_back(words.source());
    }
    ids.resize(first);
    ids.push_back(unknown());
  }

  // The id of the longest piece that begins at `begin`, and its end; -1: there is none. Tokens are valid UTF-8, so none
  // ends inside a letter.
  std::pair<int32_t, size_t> longest_piece(std::string_view word, size_t begin) const {
    for (size_t end = std::min(word.size(), begin + longest_); end > begin; --end) {
      const std::string_view piece = word.substr(begin, end - begin);
      if (begin == 0) {
        if (const int32_t id = vocabulary_.find(piece); id >= 0) return {id, end};
      } else {
        if (const int32_t rest = continuations_.find(piece); rest >= 0) {
          return {continuation_ids_[static_cast<size_t>(rest)], end};
        }
      }
    }
    return {-1, begin};
  }

  WordPiece settings_;
  Vocabulary vocabulary_;
  Vocabulary continuations_;  // without the prefix
  std::vector<int32_t> continuation_ids_;
  size_t longest_ = 0;  // bytes of a token
};

}  // namespace

std::shared_ptr<const Tokenizer> make_wordpiece(WordPiece settings, const std::string& name) {
  const auto& tokens = settings.tokens;
  const auto bad = std::find_if_not(tokens.begin(), tokens.end(), is_valid_utf8);
  if (bad != tokens.end()) {
    throw io::Error(name + ": token " + std::to_string(bad - tokens.begin()) + " is not valid UTF-8");
  }
  const auto unknown = std::find(tokens.begin(), tokens.end(), settings.unknown);
  if (unknown == tokens.end()) {
    throw io::Error(name + ": the vocabulary has no " + io::printable(settings.unknown) +
                    "; expected a WordPiece vocabulary");
  }
  auto vocabulary = make_vocabulary(tokens, static_cast<int32_t>(unknown - tokens.begin()), name);
  return std::make_shared<WordPieceTokenizer>(std::move(settings), std::move(vocabulary));
}

std::shared_ptr<const Tokenizer> wordpiece_from_json(const nlohmann::json& stored, const std::string& name) {
  WordPiece settings;
  settings.tokens = stored.at("tokens").get<std::vector<std::string>>();
  settings.unknown = stored.at("unknown").get<std::string>();
  settings.prefix = stored.at("prefix").get<std::string>();
  settings.max_letters = stored.at("max_letters").get<size_t>();
  settings.rules = {stored.at("lowercase").get<bool>(), stored.at("strip_accents").get<bool>(),
                    stored.at("clean_text").get<bool>(), stored.at("split_chinese").get<bool>()};
  settings.decoding = stored_decoding(stored, settings.decoding);
  return make_wordpiece(std::move(settings), name);
}

}  // namespace ramify::text
