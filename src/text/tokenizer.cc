#include "text/tokenizer.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "io/atomic_file.h"
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
  int32_t unknown() const override { return vocabulary_.unknown(); }
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
};

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
  constexpr size_t kMaxModelBytes = size_t{256} << 20;
  if (path.ends_with(".model")) return make_sentencepiece(io::read_file(path, kMaxModelBytes), path);
  return path.ends_with(".json") ? load_tokenizer_json(path) : load_vocab_txt(path);
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(const nlohmann::json& json, const std::string& name) {
  try {
    const auto type = json.at("type").get<std::string>();
    if (type == "word") {
      return word(make_vocabulary(json.at("tokens").get<std::vector<std::string>>(), 0, name));
    }
    if (type == "wordpiece") return wordpiece_from_json(json, name);
    if (type == "sentencepiece") return sentencepiece_from_json(json, name);
    throw io::Error(name + ": a tokenizer of type " + io::printable(type) +
                    "; expected word, wordpiece or sentencepiece");
  } catch (const nlohmann::json::exception& error) {
    throw io::Error(name + ": is no tokenizer: " + error.what());
  }
}

}  // namespace ramify::text
