// What the small JSON files of a published model's folder say about its tokens: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, generation_config.json and config.json, each of which may be missing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/tokenizer.h"

namespace ramify::text {

// io::Error that names the file for what is not JSON or of another type than expected.
class FolderSettings {
 public:
  explicit FolderSettings(const std::string& folder);
  static FolderSettings beside(const std::string& path);

  bool flag(const char* key, bool otherwise) const;  // of tokenizer_config.json
  std::string tokenizer_class() const;               // of tokenizer_config.json; empty: not said
  std::string model_type() const;                    // of config.json; empty: not said
  int32_t padding_id() const;                        // of config.json; -1: not said

  // One id or several: "eos_token_id", ... of generation_config.json, else of config.json; empty: not said.
  std::vector<int32_t> generation_ids(const char* key) const;

  // The token with a role: "cls_token", "pad_token", ...
  std::optional<std::string> token(const char* role) const;

  // The tokens to be looked for in a text: those of `usual` that the tokenizer has, those with a role, those that
  // were added. <mask> takes the space before it, unless something else is said, as it does in RoBERTa.
  std::vector<AddedToken> added_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& usual) const;

 private:
  struct File {
    std::string path;
    nlohmann::json content = nlohmann::json::object();
  };
  static File read(const std::string& path);
  static std::string text_in(const File& file, const char* key);

  // read only when asked for: others than models have a config.json, too
  std::string config_path_, generation_config_path_;
  File tokenizer_config_, special_tokens_, added_tokens_;
};

}  // namespace ramify::text
