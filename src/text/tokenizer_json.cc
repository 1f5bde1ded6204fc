// tokenizer.json, the one file in which Hugging Face describes any tokenizer: by the type of its model.
#include <nlohmann/json.hpp>

#include "text/json_files.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

using nlohmann::json;

// Older files do not say what their model is.
std::string model_type_of(const json& file) {
  const json::object_t& model = file.at("model").get_ref<const json::object_t&>();
  if (const auto type = model.find("type"); type != model.end()) return type->second.get<std::string>();
  return model.contains("merges") ? "BPE" : "WordPiece";
}

std::vector<AddedToken> added_tokens_of(const json& file, const std::string& path) {
  const json list = file.value("added_tokens", json());
  if (list.is_null()) return {};
  auto tokens = added_tokens_from_json(list);
  if (!file.value("normalizer", json()).is_null()) check_not_normalized(tokens, path);
  return tokens;
}

}  // namespace

bool is_sentencepiece_in_json(const json& file) {
  if (!file.is_object() || !file.contains("model") || !file.at("model").is_object()) return false;
  const json& model = file.at("model");
  return model.value("type", json()) == "Unigram" || model.value("byte_fallback", json()) == true;
}

Decoding decoder_of_tokenizer_json(const json& file, const std::string& path) {
  try {
    return decoding_from_json(file.value("decoder", json()));
  } catch (const json::exception& error) {
    throw io::Error(path + ": is no tokenizer.json: " + io::json_reason(error.what()));
  }
}

std::shared_ptr<const Tokenizer> tokenizer_from_tokenizer_json(const json& file, const std::string& path) {
  try {
    const auto type = model_type_of(file);
    if (type != "WordPiece" && type != "BPE") {
      throw io::Error(path + ": has a model of type " + io::printable(type) + "; expected WordPiece or BPE");
    }
    auto tokenizer = type == "BPE" ? byte_level_bpe_from_tokenizer_json(file, path)  //
                                   : wordpiece_from_tokenizer_json(file, path);
    return with_added_tokens(std::move(tokenizer), added_tokens_of(file, path), path);
  } catch (const json::exception& error) {
    throw io::Error(path + ": is no tokenizer.json: " + io::json_reason(error.what()));
  }
}

}  // namespace ramify::text
