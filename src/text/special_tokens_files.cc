// The special tokens that the files of a published model ask for.
#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "text/folder_settings.h"
#include "text/json_files.h"
#include "text/special_tokens.h"

namespace ramify::text {
namespace {

using nlohmann::json;
using Part = SpecialTokens::Part;
using Template = SpecialTokens::Template;

struct Templates {
  Template single = {{Part::first}};
  Template pair = {{Part::first}, {Part::second, 1}};
};

// A token that the tokenizer has; io::Error("PATH: ...") otherwise.
int32_t checked_id(const json& number, const Tokenizer& tokenizer, const std::string& path) {
  const int32_t id = json_id(number);
  if (id < 0 || id >= tokenizer.size()) {
    throw io::Error(path + ": the special token " + std::to_string(id) + " is none of the " +
                    std::to_string(tokenizer.size()) + " tokens");
  }
  return id;
}

Templates bert_templates(int32_t cls, int32_t sep) {
  return {{{Part::token, 0, cls}, {Part::first, 0}, {Part::token, 0, sep}},
          {{Part::token, 0, cls}, {Part::first, 0}, {Part::token, 0, sep}, {Part::second, 1}, {Part::token, 1, sep}}};
}

Templates roberta_templates(int32_t cls, int32_t sep) {
  return {{{Part::token, 0, cls}, {Part::first, 0}, {Part::token, 0, sep}},
          {{Part::token, 0, cls},
           {Part::first, 0},
           {Part::token, 0, sep},
           {Part::token, 0, sep},
           {Part::second, 0},
           {Part::token, 0, sep}}};
}

// With `bos` before and `eos` behind each text, where there is one.
Templates llama_templates(int32_t bos, int32_t eos) {
  Templates templates{{}, {}};
  const auto add = [&](Template& pieces, Part part, int32_t type) {
    if (bos >= 0) pieces.push_back({Part::token, type, bos});
    pieces.push_back({part, type});
    if (eos >= 0) pieces.push_back({Part::token, type, eos});
  };
  add(templates.single, Part::first, 0);
  add(templates.pair, Part::first, 0);
  add(templates.pair, Part::second, 1);
  return templates;
}

// The tokenizer.json of a folder.
class PostProcessorReader {
 public:
  PostProcessorReader(const Tokenizer& tokenizer, std::string path) : tokenizer_(tokenizer), path_(std::move(path)) {}

  Templates read(const json& processor) const {
    const auto type = processor.at("type").get<std::string>();
    if (type == "TemplateProcessing") return {pieces(processor, "single"), pieces(processor, "pair")};
    if (type == "BertProcessing") return bert_templates(id_in(processor, "cls"), id_in(processor, "sep"));
    if (type == "RobertaProcessing") return roberta_templates(id_in(processor, "cls"), id_in(processor, "sep"));
    if (type == "ByteLevel") return {};  // changes only the places of tokens
    if (type == "Sequence") return read_sequence(processor.at("processors"));
    throw io::Error(path_ + ": has the post_processor " + io::printable(type) +
                    "; expected TemplateProcessing, BertProcessing or RobertaProcessing");
  }

 private:
  Templates read_sequence(const json& processors) const {
    const json* only = nullptr;
    for (const json& processor : processors) {
      const auto type = processor.at("type").get<std::string>();
      if (type == "ByteLevel") continue;
      if (only || type == "Sequence") throw io::Error(path_ + ": has several post_processors; expected one");
      only = &processor;
    }
    return only ? read(*only) : Templates{};
  }

  Template pieces(const json& processor, const char* key) const {
    Template all;
    for (const json& piece : processor.at(key)) {
      if (piece.contains("Sequence")) {
        const json& text = piece.at("Sequence");
        all.push_back({text.at("id").get<std::string>() == "A" ? Part::first : Part::second, type_of(text)});
        continue;
      }
      const json& token = piece.at("SpecialToken");
      const auto name = token.at("id").get<std::string>();
      for (const json& id : processor.at("special_tokens").at(name).at("ids")) {
        all.push_back({Part::token, type_of(token), checked_id(id, tokenizer_, path_)});
      }
    }
    return all;
  }

  int32_t type_of(const json& piece) const {
    const int32_t type = json_id(piece.at("type_id"));
    if (type != 0 && type != 1) {
      throw io::Error(path_ + ": a template has the type " + std::to_string(type) + "; expected 0 or 1");
    }
    return type;
  }

  // "sep": ["</s>", 2]
  int32_t id_in(const json& processor, const char* key) const {
    return checked_id(processor.at(key).at(1), tokenizer_, path_);
  }

  const Tokenizer& tokenizer_;
  std::string path_;
};

enum class Family { bert, roberta, llama, other };

Family family_of(const FolderSettings& folder) {
  const auto is_one_of = [](std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (const std::string type = folder.model_type(); !type.empty()) {
    if (is_one_of(type, {"bert", "distilbert", "electra", "mobilebert", "convbert"})) {
      return Family::bert;
    }
    if (is_one_of(type, {"roberta", "xlm-roberta", "camembert", "mpnet", "bart", "longformer", "data2vec-text"})) {
      return Family::roberta;
    }
    return is_one_of(type, {"llama", "mistral", "mixtral", "gemma"}) ? Family::llama : Family::other;
  }
  if (const std::string type = folder.tokenizer_class(); !type.empty()) {
    if (type.starts_with("Bert") || type.starts_with("DistilBert") || type.starts_with("Electra")) return Family::bert;
    if (type.starts_with("Roberta") || type.starts_with("MPNet") || type.starts_with("XLMRoberta")) {
      return Family::roberta;
    }
    return type.starts_with("Llama") ? Family::llama : Family::other;
  }
  const auto cls = folder.token("cls_token");
  return cls == "[CLS]" ? Family::bert : cls == "<s>" ? Family::roberta : Family::other;
}

// The template of a family with the names of the folder, or those that it has by convention.
Templates conventional_templates(const FolderSettings& folder, const Tokenizer& tokenizer, const std::string& path) {
  const auto id = [&](const char* role, const char* usual) {
    const std::string name = folder.token(role).value_or(usual);
    const int32_t found = tokenizer.find(name);
    if (found < 0) throw io::Error(path + ": the tokenizer has no " + io::printable(name) + ", the " + role);
    return found;
  };
  switch (family_of(folder)) {
    case Family::bert:
      return bert_templates(id("cls_token", "[CLS]"), id("sep_token", "[SEP]"));
    case Family::roberta:
      return roberta_templates(id("cls_token", "<s>"), id("sep_token", "</s>"));
    case Family::llama:
      return llama_templates(folder.flag("add_bos_token", true) ? id("bos_token", "<s>") : -1,
                             folder.flag("add_eos_token", false) ? id("eos_token", "</s>") : -1);
    case Family::other:
      return {};
  }
  return {};
}

std::optional<int32_t> padding_of(const FolderSettings& folder, const json& tokenizer_json, const Tokenizer& tokenizer,
                                  const std::string& path) {
  if (const auto name = folder.token("pad_token")) {
    if (const int32_t id = tokenizer.find(*name); id >= 0) return id;
  }
  const json stored = tokenizer_json.is_object() ? tokenizer_json.value("padding", json()) : json();
  if (!stored.is_null()) return checked_id(stored.at("pad_id"), tokenizer, path);
  if (const int32_t id = folder.padding_id(); id >= 0 && id < tokenizer.size()) return id;
  for (const char* usual : {"[PAD]", "<pad>"}) {
    if (const int32_t id = tokenizer.find(usual); id >= 0) return id;
  }
  return std::nullopt;
}

// The ids that the model's files name, else the token that the tokenizer's files or, last, `usual` do.
std::vector<int32_t> bound_of(const FolderSettings& folder, const Tokenizer& tokenizer, const std::string& role,
                              std::initializer_list<const char*> usual) {
  auto ids = folder.generation_ids((role + "_id").c_str());
  if (!ids.empty()) return ids;
  if (const auto name = folder.token(role.c_str())) {
    if (const int32_t id = tokenizer.find(*name); id >= 0) return {id};
  }
  for (const char* name : usual) {
    if (const int32_t id = tokenizer.find(name); id >= 0) return {id};
  }
  return {};
}

SpecialTokens::Bounds bounds_of(const FolderSettings& folder, const Tokenizer& tokenizer) {
  const auto begins = bound_of(folder, tokenizer, "bos_token", {"<s>", "<|endoftext|>"});
  SpecialTokens::Bounds bounds;
  if (!begins.empty()) bounds.beginning = begins[0];
  bounds.ends = bound_of(folder, tokenizer, "eos_token", {"</s>", "<|endoftext|>"});
  return bounds;
}

}  // namespace

SpecialTokens SpecialTokens::load(const std::string& folder, const Tokenizer& tokenizer) {
  const FolderSettings settings(folder);
  const std::string path = folder + "/tokenizer.json";
  std::error_code unreadable;
  json file;
  if (std::filesystem::exists(path, unreadable)) file = read_json_file(path);
  try {
    const json processor = file.is_null() ? json() : file.value("post_processor", json());
    Templates templates = processor.is_null() ? conventional_templates(settings, tokenizer, folder)
                                              : PostProcessorReader(tokenizer, path).read(processor);
    return {std::move(templates.single), std::move(templates.pair), padding_of(settings, file, tokenizer, path),
            bounds_of(settings, tokenizer)};
  } catch (const json::exception& error) {
    throw io::Error(path + ": is no tokenizer.json: " + io::json_reason(error.what()));
  } catch (const std::invalid_argument& error) {
    throw io::Error(path + ": " + error.what());
  }
}

}  // namespace ramify::text
