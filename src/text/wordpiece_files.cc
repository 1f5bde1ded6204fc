// WordPiece as it is published: vocab.txt, one token a line, or tokenizer.json.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/lines.h"
#include "text/folder_settings.h"
#include "text/json_files.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

using nlohmann::json;

// Names like [UNK] have capitals in every vocabulary.
bool has_capitals(const std::vector<std::string>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return !token.starts_with('[') &&
           std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  });
}

BertRules rules_of(const json& normalizer, const std::string& path) {
  if (normalizer.is_null()) return {false, false, false, false};
  const auto type = normalizer.at("type").get<std::string>();
  if (type != "BertNormalizer") {
    throw io::Error(path + ": has the normalizer " + io::printable(type) + "; expected BertNormalizer");
  }
  BertRules rules;
  rules.lowercase = json_flag(normalizer, "lowercase", true);
  rules.strip_accents = json_flag(normalizer, "strip_accents", rules.lowercase);
  rules.clean_text = json_flag(normalizer, "clean_text", true);
  rules.split_chinese = json_flag(normalizer, "handle_chinese_chars", true);
  return rules;
}

}  // namespace

std::shared_ptr<const Tokenizer> load_vocab_txt(const std::string& path) {
  WordPiece settings;
  io::LineReader lines(path, kMaxTokenBytes);
  for (std::string line; lines.next(line);) {
    if (settings.tokens.size() == kMaxTokens) throw io::Error(path + ": has too many lines for a vocabulary");
    settings.tokens.push_back(line);
  }
  settings.rules.lowercase = settings.rules.strip_accents = !has_capitals(settings.tokens);
  const FolderSettings folder = FolderSettings::beside(path);
  settings.rules.lowercase = folder.flag("do_lower_case", settings.rules.lowercase);
  settings.rules.strip_accents = folder.flag("strip_accents", settings.rules.lowercase);
  settings.rules.split_chinese = folder.flag("tokenize_chinese_chars", true);
  const auto tokenizer = make_wordpiece(std::move(settings), path);
  const auto added = folder.added_tokens(*tokenizer, {"[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"});
  check_not_normalized(added, path);
  return with_added_tokens(tokenizer, added, path);
}

std::shared_ptr<const Tokenizer> wordpiece_from_tokenizer_json(const json& file, const std::string& path) {
  const json& model = file.at("model");
  const json splitter = file.value("pre_tokenizer", json());
  if (!splitter.is_object() || splitter.value("type", "") != "BertPreTokenizer") {
    throw io::Error(path + ": has another pre_tokenizer; expected BertPreTokenizer");
  }
  WordPiece settings;
  settings.tokens = tokens_by_id(model.at("vocab"), path);
  settings.unknown = model.value("unk_token", settings.unknown);
  settings.prefix = model.value("continuing_subword_prefix", settings.prefix);
  if (const auto limit = model.find("max_input_chars_per_word"); limit != model.end()) {
    const int32_t letters = json_id(*limit);
    if (letters < 0) throw io::Error(path + ": is no tokenizer.json: max_input_chars_per_word is no whole number");
    settings.max_letters = static_cast<size_t>(letters);
  }
  settings.rules = rules_of(file.value("normalizer", json()), path);
  settings.decoding = decoding_from_json(file.value("decoder", json()));
  return make_wordpiece(std::move(settings), path);
}

}  // namespace ramify::text
