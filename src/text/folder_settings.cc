#include "text/folder_settings.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "io/error.h"
#include "text/json_files.h"

namespace ramify::text {
namespace {

using nlohmann::json;

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// A token is given by its content alone or with its properties.
std::string content_of(const json& token) {
  return token.is_object() ? token.at("content").get<std::string>() : token.get<std::string>();
}

// Tokens that were said to be special are looked for as they are written.
AddedToken special_token(const json& token, int32_t id) {
  AddedToken special;
  special.content = content_of(token);
  special.id = id;
  special.strips_left = token.is_object() ? json_flag(token, "lstrip", false) : special.content == "<mask>";
  if (token.is_object()) {
    special.strips_right = json_flag(token, "rstrip", false);
    special.single_word = json_flag(token, "single_word", false);
  }
  return special;
}

int32_t parse_id(const std::string& text) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end == text.data() + text.size() ? id : -1;
}

// Tokens by their content; of several that say something about the same one the last counts.
class TokenCollector {
 public:
  explicit TokenCollector(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(AddedToken token) { tokens_.insert_or_assign(token.content, token); }

  // What neither the tokenizer nor an earlier addition has is left out: a model would have no row for it.
  void add_special(const json& token) {
    const std::string content = content_of(token);
    const auto added = tokens_.find(content);
    const int32_t id = added == tokens_.end() ? tokenizer_.find(content) : added->second.id;
    if (id >= 0) add(special_token(token, id));
  }

  void add_specials(const json& settings) {
    for (const char* role : kRoles) {
      if (const auto token = settings.find(role); token != settings.end() && !token->is_null()) add_special(*token);
    }
    const json others = settings.value("additional_special_tokens", json());
    if (!others.is_null()) {
      for (const json& token : others.get_ref<const json::array_t&>()) add_special(token);
    }
  }

  std::vector<AddedToken> all() const {
    std::vector<AddedToken> tokens;
    for (const auto& [content, token] : tokens_) tokens.push_back(token);
    return tokens;
  }

 private:
  const Tokenizer& tokenizer_;
  std::map<std::string, AddedToken> tokens_;
};

// Runs `read`; what it finds of another type becomes an io::Error that names the file.
template <class Read>
auto reading(const std::string& path, Read read) {
  try {
    return read();
  } catch (const json::exception& error) {
    throw io::Error(path + ": is no tokenizer configuration: " + io::json_reason(error.what()));
  }
}

}  // namespace

FolderSettings::File FolderSettings::read(const std::string& path) {
  File file{path};
  std::error_code unreadable;  // is left to the reader, which has a message for it
  if (!std::filesystem::exists(path, unreadable) && !unreadable) return file;
  file.content = read_json_file(path);
  if (!file.content.is_object()) throw io::Error(path + ": is no object of settings");
  return file;
}

FolderSettings::FolderSettings(const std::string& folder)
    : config_path_(folder + "/config.json"),
      generation_config_path_(folder + "/generation_config.json"),
      tokenizer_config_(read(folder + "/tokenizer_config.json")),
      special_tokens_(read(folder + "/special_tokens_map.json")),
      added_tokens_(read(folder + "/added_tokens.json")) {}

FolderSettings FolderSettings::beside(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return FolderSettings(folder.empty() ? "." : folder.string());
}

bool FolderSettings::flag(const char* key, bool otherwise) const {
  return reading(tokenizer_config_.path, [&] { return json_flag(tokenizer_config_.content, key, otherwise); });
}

std::string FolderSettings::text_in(const File& file, const char* key) {
  return reading(file.path, [&] {
    const auto found = file.content.find(key);
    return found == file.content.end() || found->is_null() ? std::string() : found->get<std::string>();
  });
}

std::string FolderSettings::tokenizer_class() const {
  return text_in(tokenizer_config_, "tokenizer_class");
}

std::string FolderSettings::model_type() const {
  return text_in(read(config_path_), "model_type");
}

int32_t FolderSettings::padding_id() const {
  return json_id(read(config_path_).content.value("pad_token_id", json()));
}

std::vector<int32_t> FolderSettings::generation_ids(const char* key) const {
  std::vector<int32_t> ids;
  for (const std::string& path : {generation_config_path_, config_path_}) {
    const json value = read(path).content.value(key, json());
    for (const json& number : value.is_array() ? value : json::array({value})) {
      if (const int32_t id = json_id(number); id >= 0) ids.push_back(id);
    }
    if (!ids.empty()) break;
  }
  return ids;
}

std::optional<std::string> FolderSettings::token(const char* role) const {
  for (const File* file : {&tokenizer_config_, &special_tokens_}) {
    const auto found = file->content.find(role);
    if (found == file->content.end() || found->is_null()) continue;
    return reading(file->path, [&] { return content_of(*found); });
  }
  return std::nullopt;
}

std::vector<AddedToken> FolderSettings::added_tokens(const Tokenizer& tokenizer,
                                                     const std::vector<std::string>& usual) const {
  TokenCollector tokens(tokenizer);
  for (const auto& [content, number] : added_tokens_.content.items()) {
    const int32_t id = json_id(number);
    if (id < 0)
      throw io::Error(added_tokens_.path + ": token " + io::printable(content) + " has no whole number as id");
    tokens.add({.content = content, .id = id, .normalized = true, .special = false});
  }
  for (const std::string& content : usual) tokens.add_special(content);
  for (const File* file : {&special_tokens_, &tokenizer_config_}) {
    reading(file->path, [&] { tokens.add_specials(file->content); });
  }
  reading(tokenizer_config_.path, [&] {
    const json decoder = tokenizer_config_.content.value("added_tokens_decoder", json::object());
    for (const auto& [id, token] : decoder.get_ref<const json::object_t&>()) {
      AddedToken added = special_token(token, parse_id(id));
      added.special = json_flag(token, "special", false);
      added.normalized = json_flag(token, "normalized", false) && !added.special;
      tokens.add(std::move(added));
    }
  });
  return tokens.all();
}

}  // namespace ramify::text
