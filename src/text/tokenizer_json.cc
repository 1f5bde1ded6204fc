// tokenizer.json, the one file in which Hugging Face describes any tokenizer: by the type of its model.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/json_files.h"
#include "text/tokenizers.h"

namespace ramify::text {
namespace {

using nlohmann::json;

// Older files do not say what their model is.
std::string model_type_of(const json& model) {
  if (model.contains("type")) return model.at("type").get<std::string>();
  return model.contains("merges") ? "BPE" : "WordPiece";
}

std::vector<AddedToken> added_tokens_of(const json& file, const std::string& path) {
  const json list = file.value("added_tokens", json());
  if (list.is_null()) return {};
  auto tokens = added_tokens_from_json(list);
  const bool normalizes = !file.value("normalizer", json()).is_null();
  const auto found = std::find_if(tokens.begin(), tokens.end(), [](const auto& token) { return token.normalized; });
  if (normalizes && found != tokens.end()) {
    throw io::Error(path + ": the added token " + io::printable(found->content) +
                    " is one of the normalised text; expected \"normalized\": false");
  }
  return tokens;
}

}  // namespace

bool is_sentencepiece_in_json(const json& file) {
  const json model = file.is_object() ? file.value("model", json()) : json();
  if (!model.is_object()) return false;
  return model.value("type", json()) == "Unigram" || model.value("byte_fallback", json()) == true;
}

std::shared_ptr<const Tokenizer> tokenizer_from_tokenizer_json(const json& file, const std::string& path) {
  try {
    const auto type = model_type_of(file.at("model"));
    if (type != "WordPiece" && type != "BPE") {
      throw io::Error(path + ": has a model of type " + io::printable(type) + "; expected WordPiece or BPE");
    }
    auto tokenizer = type == "BPE" ? byte_level_bpe_from_tokenizer_json(file, path)  //
                                   : wordpiece_from_tokenizer_json(file, path);
    return with_added_tokens(std::move(tokenizer), added_tokens_of(file, path), path);
  } catch (const json::exception& error) {
    throw io::Error(path + ": is no tokenizer.json: " + error.what());
  }
}

}  // namespace ramify::text
