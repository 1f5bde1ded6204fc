// WordPiece as it is published: vocab.txt, one token a line, or tokenizer.json.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "io/lines.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr size_t kMaxJsonBytes = size_t{256} << 20;

json parse_json(const std::string& path) {
  try {
    return json::parse(io::read_file(path, kMaxJsonBytes));
  } catch (const json::exception& error) {
    throw io::Error(path + ": is not valid JSON: " + error.what());
  }
}

// Names like [UNK] have capitals in every vocabulary.
bool has_capitals(const std::vector<std::string>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return !token.starts_with('[') &&
           std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  });
}

bool flag(const json& settings, const char* key, bool otherwise) {
  const auto found = settings.find(key);
  return found == settings.end() || found->is_null() ? otherwise : found->get<bool>();
}

// Tokens by id, from an object of ids by token.
std::vector<std::string> tokens_by_id(const json& ids, const std::string& path) {
  std::vector<std::string> tokens(ids.size());
  std::vector<bool> seen(ids.size());
  for (const auto& [token, number] : ids.items()) {
    const auto id = number.get<int64_t>();
    if (id < 0 || id >= static_cast<int64_t>(tokens.size()) || seen[static_cast<size_t>(id)]) {
      throw io::Error(path + ": token " + io::printable(token) + " has the id " + std::to_string(id) +
                      "; expected each from 0 to " + std::to_string(tokens.size() - 1) + " once");
    }
    seen[static_cast<size_t>(id)] = true;
    tokens[static_cast<size_t>(id)] = token;
  }
  return tokens;
}

BertRules rules_of(const json& normalizer, const std::string& path) {
  if (normalizer.is_null()) return {false, false, false, false};
  const auto type = normalizer.at("type").get<std::string>();
  if (type != "BertNormalizer") {
    throw io::Error(path + ": has the normalizer " + io::printable(type) + "; expected BertNormalizer");
  }
  BertRules rules;
  rules.lowercase = flag(normalizer, "lowercase", true);
  rules.strip_accents = flag(normalizer, "strip_accents", rules.lowercase);
  rules.clean_text = flag(normalizer, "clean_text", true);
  rules.split_chinese = flag(normalizer, "handle_chinese_chars", true);
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
  const std::string beside = std::filesystem::path(path).replace_filename("tokenizer_config.json").string();
  if (std::filesystem::exists(beside)) {
    const json config = parse_json(beside);
    try {
      settings.rules.lowercase = flag(config, "do_lower_case", settings.rules.lowercase);
      settings.rules.strip_accents = flag(config, "strip_accents", settings.rules.lowercase);
      settings.rules.split_chinese = flag(config, "tokenize_chinese_chars", true);
    } catch (const json::exception& error) {
      throw io::Error(beside + ": is no tokenizer configuration: " + error.what());
    }
  }
  return make_wordpiece(std::move(settings), path);
}

std::shared_ptr<const Tokenizer> load_tokenizer_json(const std::string& path) {
  const json file = parse_json(path);
  try {
    const json& model = file.at("model");
    const auto type = model.value("type", std::string("WordPiece"));
    if (type != "WordPiece")
      throw io::Error(path + ": has a model of type " + io::printable(type) + "; expected WordPiece");
    const json splitter = file.value("pre_tokenizer", json());
    if (!splitter.is_object() || splitter.value("type", "") != "BertPreTokenizer") {
      throw io::Error(path + ": has another pre_tokenizer; expected BertPreTokenizer");
    }
    WordPiece settings;
    settings.tokens = tokens_by_id(model.at("vocab"), path);
    settings.unknown = model.value("unk_token", settings.unknown);
    settings.prefix = model.value("continuing_subword_prefix", settings.prefix);
    settings.max_letters = model.value("max_input_chars_per_word", settings.max_letters);
    settings.rules = rules_of(file.value("normalizer", json()), path);
    return make_wordpiece(std::move(settings), path);
  } catch (const json::exception& error) {
    throw io::Error(path + ": is no tokenizer.json with a WordPiece model: " + error.what());
  }
}

}  // namespace ramify::text
