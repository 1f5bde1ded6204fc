#include "text/tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "text/json_files.h"
#include "text/tokenizers.h"
#include "text/utf8.h"
#include "text/words.h"

namespace ramify::text {
namespace {

class WordTokenizer : public Tokenizer {
 public:
  explicit WordTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  int64_t size() const override { return vocabulary_.size(); }
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  int32_t find(std::string_view token) const override { return vocabulary_.find(token); }
  int32_t unknown() const override { return vocabulary_.unknown(); }
  bool is_special(int32_t) const override { return false; }
  const Decoding& decoding() const override { return decoding_; }
  nlohmann::json to_json() const override { return {{"type", "word"}, {"tokens", vocabulary_.tokens()}}; }

 private:
  void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const override {
    thread_local Words words;
    words.split(text);
    for (size_t i = 0; i < words.size(); ++i) {
      ids.push_back(vocabulary_.id(words[i]));
      if (spans) spans->push_back(words.source(i));
    }
  }

  Vocabulary vocabulary_;
  Decoding decoding_;
};

std::shared_ptr<const Tokenizer> base_from_json(const nlohmann::json& stored, const std::string& name) {
  const auto type = stored.at("type").get<std::string>();
  if (type == "word") {
    return Tokenizer::word(make_vocabulary(stored.at("tokens").get<std::vector<std::string>>(), 0, name));
  }
  if (type == "wordpiece") return wordpiece_from_json(stored, name);
  if (type == "byte_level_bpe") return byte_level_bpe_from_json(stored, name);
  if (type == "sentencepiece") return sentencepiece_from_json(stored, name);
  throw io::Error(name + ": a tokenizer of type " + io::printable(type) +
                  "; expected word, wordpiece, byte_level_bpe or sentencepiece");
}

}  // namespace

Vocabulary make_vocabulary(const std::vector<std::string>& tokens, int32_t unknown, const std::string& name) {
  try {
    return Vocabulary(tokens, unknown);
  } catch (const std::invalid_argument& error) {
    throw io::Error(name + ": " + error.what());
  }
}

std::shared_ptr<const Tokenizer> Tokenizer::word(Vocabulary vocabulary) {
  return std::make_shared<WordTokenizer>(std::move(vocabulary));
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  std::error_code unreadable;  // is left to the reader of the file
  if (std::filesystem::is_directory(path, unreadable)) return load_tokenizer_folder(path);
  if (path.ends_with(".model")) return make_sentencepiece(io::read_file(path, kMaxModelBytes), path);
  if (path.ends_with("vocab.json")) return load_vocab_json(path);
  if (path.ends_with(".json")) return tokenizer_from_tokenizer_json(read_json_file(path), path);
  return load_vocab_txt(path);
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(const nlohmann::json& stored, const std::string& name) {
  try {
    auto tokenizer = base_from_json(stored, name);
    if (!stored.contains("added_tokens")) return tokenizer;
    return with_added_tokens(std::move(tokenizer), added_tokens_from_json(stored["added_tokens"]), name);
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(name + ": is no tokenizer: " + io::json_reason(error.what()));
  }
}

void Tokenizer::tokenize(std::string_view text, std::vector<int32_t>& ids) const {
  if (is_valid_utf8(text)) return append(text, ids, nullptr);
  append(valid_utf8(text), ids, nullptr);
}

void Tokenizer::tokenize(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>& spans) const {
  if (is_valid_utf8(text)) return append(text, ids, &spans);
  const RepairedUtf8 repaired(text);
  const size_t first = spans.size();
  append(repaired.text(), ids, &spans);
  for (size_t i = first; i < spans.size(); ++i) spans[i] = repaired.source(spans[i]);
}

}  // namespace ramify::text
