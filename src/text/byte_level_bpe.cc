// Byte-level BPE (GPT-2, RoBERTa): each word of a text is a row of bytes, merged into the tokens of a vocabulary.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/byte_level.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

class ByteLevelBpeTokenizer : public Tokenizer {
 public:
  ByteLevelBpeTokenizer(ByteLevelBpe settings, Vocabulary vocabulary)
      : settings_(std::move(settings)), vocabulary_(std::move(vocabulary)), merges_(settings_.merges) {
    settings_.tokens.clear();  // vocabulary_ has them
    if (settings_.unknown) unknown_ = vocabulary_.find(*settings_.unknown);
    for (size_t byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      byte_ids_[byte] = vocabulary_.find(to_byte_alphabet({&c, 1}));
    }
    collect_whole_words();
  }

  int64_t size() const override { return vocabulary_.size(); }
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  int32_t find(std::string_view token) const override { return vocabulary_.find(token); }
  int32_t unknown() const override { return unknown_ >= 0 ? unknown_ : vocabulary_.find(Vocabulary::kUnknown); }
  bool is_special(int32_t) const override { return false; }
  const Decoding& decoding() const override { return settings_.decoding; }

  nlohmann::json to_json() const override {
    auto merges = nlohmann::json::array();
    for (const Merge& merge : settings_.merges) merges.push_back({merge.left, merge.right, merge.result});
    return {{"type", "byte_level_bpe"},
            {"tokens", vocabulary_.tokens()},
            {"merges", std::move(merges)},
            {"unknown", settings_.unknown ? nlohmann::json(*settings_.unknown) : nlohmann::json()},
            {"fuse_unknown", settings_.fuse_unknown},
            {"prefix_space", settings_.prefix_space},
            {"split_words", settings_.split_words},
            {"whole_words", settings_.whole_words},
            {"decoder", decoding_to_json(settings_.decoding)}};
  }

 private:
  // Words of one text on their way to tokens.
  struct Work {
    explicit Work(const MergeTable& merges) : merger(merges) {}
    WordMerger merger;
    std::vector<WordMerger::Token> tokens;
  };

  // Most words of a text are one token; those that the merges lead to are found without merging.
  void collect_whole_words() {
    std::vector<std::string> words = {""};  // never looked up; a vocabulary has one token at least
    whole_ids_ = {-1};
    Work work(merges_);
    for (int32_t id = 0; id < size(); ++id) {
      auto bytes = from_byte_alphabet(vocabulary_.token(id));
      if (!bytes || bytes->empty()) continue;
      if (!settings_.whole_words) {
        merge_word(*bytes, 0, work);
        if (work.tokens.size() != 1 || work.tokens[0].id != id) continue;
      }
      words.push_back(std::move(*bytes));
      whole_ids_.push_back(id);
    }
    whole_words_ = Vocabulary(words);
  }

  void append(std::string_view text, std::vector<int32_t>& ids, std::vector<Span>* spans) const override {
    std::string spaced;
    const bool adds_space = settings_.prefix_space && !text.empty() && text[0] != ' ';
    if (adds_space) spaced.append(" ").append(text);
    const std::string_view whole = adds_space ? spaced : text;
    const size_t first = spans ? spans->size() : 0;
    Work work(merges_);
    for (size_t begin = 0; begin < whole.size();) {
      const size_t end = settings_.split_words ? byte_level_word_end(whole, begin) : whole.size();
      append_word(whole.substr(begin, end - begin), begin, work, ids, spans);
      begin = end;
    }
    if (!spans) return;
    for (size_t i = first; i < spans->size(); ++i) (*spans)[i] = letters_around((*spans)[i], adds_space, text);
  }

  void append_word(std::string_view word, size_t begin, Work& work, std::vector<int32_t>& ids,
                   std::vector<Span>* spans) const {
    if (const int32_t whole = whole_words_.find(word); whole > 0) {
      ids.push_back(whole_ids_[static_cast<size_t>(whole)]);
      if (spans) spans->push_back({begin, begin + word.size()});
      return;
    }
    merge_word(word, begin, work);
    for (const auto& token : work.tokens) {
      ids.push_back(token.id);
      if (spans) spans->push_back(token.source);
    }
  }

  void merge_word(std::string_view word, size_t begin, Work& work) const {
    work.tokens.clear();
    bool was_unknown = false;
    for (size_t i = 0; i < word.size(); ++i) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
      const Span source{begin + i, begin + i + 1};
      if (id >= 0) {
        work.tokens.push_back({id, source});
      } else if (was_unknown && settings_.fuse_unknown) {
        work.tokens.back().source.end = source.end;
      } else if (unknown_ >= 0) {
        work.tokens.push_back({unknown_, source});
      }
      was_unknown = id < 0 && unknown_ >= 0;
    }
    work.merger.merge(work.tokens);
  }

  // A token may have only some of the bytes of a letter; in `text`, which may have had a space put before it: that one
  // counts as part of the first letter.
  static Span letters_around(Span span, bool has_added_space, std::string_view text) {
    const auto is_inside_letter = [&](size_t at) {
      return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    };
    if (has_added_space) span = {span.begin - (span.begin > 0), std::max<size_t>(span.end - 1, 1)};
    while (is_inside_letter(span.begin)) --span.begin;
    while (is_inside_letter(span.end)) ++span.end;
    return span;
  }

  ByteLevelBpe settings_;
  Vocabulary vocabulary_;
  MergeTable merges_;
  int32_t unknown_ = -1;  // -1: bytes without a token are left out
  std::array<int32_t, 256> byte_ids_{};
  Vocabulary whole_words_;          // as bytes
  std::vector<int32_t> whole_ids_;  // of each
};

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_level_bpe(ByteLevelBpe settings, const std::string& name) {
  auto vocabulary = make_vocabulary(settings.tokens, 0, name);
  if (settings.unknown && vocabulary.find(*settings.unknown) < 0) {
    throw io::Error(name + ": the vocabulary has no " + io::printable(*settings.unknown) + ", its unknown token");
  }
  return std::make_shared<ByteLevelBpeTokenizer>(std::move(settings), std::move(vocabulary));
}

std::shared_ptr<const Tokenizer> byte_level_bpe_from_json(const nlohmann::json& stored, const std::string& name) {
  ByteLevelBpe settings;
  settings.tokens = stored.at("tokens").get<std::vector<std::string>>();
  const auto size = static_cast<int32_t>(settings.tokens.size());
  for (const auto& merge : stored.at("merges")) {
    const auto ids = merge.get<std::array<int32_t, 3>>();
    for (const int32_t id : ids) {
      if (id < 0 || id >= size) {
        throw io::Error(name + ": a merge has the token " + std::to_string(id) + " of " + std::to_string(size));
      }
    }
    settings.merges.push_back({ids[0], ids[1], ids[2]});
  }
  if (!stored.at("unknown").is_null()) settings.unknown = stored.at("unknown").get<std::string>();
  settings.fuse_unknown = stored.at("fuse_unknown").get<bool>();
  settings.prefix_space = stored.at("prefix_space").get<bool>();
  settings.split_words = stored.at("split_words").get<bool>();
  settings.whole_words = stored.at("whole_words").get<bool>();
  settings.decoding = stored_decoding(stored, settings.decoding);
  return make_byte_level_bpe(std::move(settings), name);
}

}  // namespace ramify::text
